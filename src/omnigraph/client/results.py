"""Answers of queries as results: Arrow with the facts in its schema, or JSON of stored queries."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from omnigraph.client.calls import Reply
from omnigraph.errors import InternalError
from omnigraph.lang.types import BOOL, F64, I64, SCALARS, STRING, ValueType, vector_type
from omnigraph.lang.values import arrow_type
from omnigraph.query.result import Result

_FACT = "omnigraph."
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def decode_arrow(reply: Reply) -> Result:
    """Return the result in a stream of Arrow."""
    try:
        with pa.ipc.open_stream(reply.content) as batches:
            return result_of(batches.read_all())
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise _unreadable(error) from error


def decode_table(reply: Reply) -> pa.Table:
    """Return the table in a stream of Arrow."""
    try:
        with pa.ipc.open_stream(reply.content) as batches:
            return batches.read_all()
    except (pa.ArrowException, ValueError) as error:
        raise _unreadable(error) from error


def result_of(table: pa.Table) -> Result:
    """Return a result for a table whose schema says what was read."""
    facts = facts_of(table.schema)
    types = tuple(map(parse_type, msgspec.json.decode(facts["types"])))
    return Result(
        table.replace_schema_metadata(None),
        types,
        facts["query_name"],
        facts.get("branch"),
        facts.get("snapshot"),
        facts.get("graph_commit_id"),
    )


def facts_of(schema: pa.Schema) -> dict[str, str]:
    """Return what the metadata of a schema says about a query."""
    found: Mapping[bytes, bytes] = schema.metadata or {}
    names = {name.decode(): value.decode() for name, value in found.items()}
    return {name.removeprefix(_FACT): value for name, value in names.items() if name.startswith(_FACT)}


def parse_type(text: str) -> ValueType:
    """Return a type by its spelling, such as `[String]?`."""
    nullable, plain = text.endswith("?"), text.removesuffix("?")
    is_list = plain.startswith("[")
    inner = plain.removeprefix("[").removesuffix("]") if is_list else plain
    if inner.startswith("Vector("):
        return vector_type(int(inner.removeprefix("Vector(").removesuffix(")")), nullable)
    if inner.startswith("enum("):
        values = inner.removeprefix("enum(").removesuffix(")").split(", ")
        return ValueType(STRING.scalar, nullable, is_list, tuple(values))
    return ValueType(SCALARS[inner], nullable, is_list)


class ChunkReader(io.RawIOBase):
    """Chunks of an answer as a file that is read once; at most one chunk is held."""

    def __init__(self, chunks: Iterator[bytes], close: Callable[[], None]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")
        self._close = close

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, target: Any) -> int:
        """Fill a buffer as far as the chunk at hand goes; 0 at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        size = min(len(target), len(self._rest))
        target[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        """Close the answer."""
        if not self.closed:
            self._close()
        super().close()


# --- JSON -----------------------------------------------------------------------------------------


def result_from_json(found: Mapping[str, Any]) -> Result:
    """Return the result in a `ReadOutput`; types of columns are those their values have in JSON."""
    names: list[str] = found.get("columns", [])
    columns = [_column([row[name] for row in found["rows"]]) for name in names]
    schema = pa.schema(
        [pa.field(name, column.type) for name, (column, _) in zip(names, columns, strict=True)]
    )
    return Result(
        pa.Table.from_arrays([column for column, _ in columns], schema=schema),
        tuple(type_ for _, type_ in columns),
        found["query_name"],
        found["target"]["branch"],
        found["target"]["snapshot"],
        found.get("graph_commit_id"),
    )


def _column(values: Sequence[Any]) -> tuple[pa.Array, ValueType]:
    type_ = _type_of(values)
    if type_.scalar is F64.scalar:
        values = [_finite(value) for value in values]
    return pa.array(values, arrow_type(type_)), type_


def _type_of(values: Sequence[Any]) -> ValueType:
    """Return the type that holds all values."""
    items = [value for value in values if value is not None]
    is_list = bool(items) and isinstance(items[0], list)
    if is_list:
        items = [item for value in items for item in value if item is not None]
    return ValueType(_scalar_of(items).scalar, nullable=True, is_list=is_list)


def _scalar_of(items: Sequence[Any]) -> ValueType:
    kinds = {type(item) for item in items}
    if kinds <= {bool} and kinds:
        return BOOL
    if kinds <= {int} and kinds:
        return I64
    numbers = all(isinstance(item, int | float) or item in _NOT_FINITE for item in items)
    return F64 if float in kinds and numbers else STRING


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _unreadable(error: Exception) -> InternalError:
    return InternalError(
        f"the server's answer is not a result in Arrow: {error!r}",
        remedy="check that the address is that of an omnigraph server of this version",
    )
