"""What a read found, in whatever form it is wanted."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.arguments import require_whole
from omnigraph.deferred_dataclass import dataclass
from omnigraph.display.grid import WIDEST, Column, Layout, fit_columns, measure_columns, render_grid
from omnigraph.display.markup import FIRST_ROWS, Heading, render_html_table
from omnigraph.display.text import escape_invisible, format_count, format_total, format_value
from omnigraph.errors import BadRequest, MissingExtra, QueryError
from omnigraph.foreign_names import ResultNames
from omnigraph.lang.types import INTEGERS, Scalar, ValueType
from omnigraph.lang.values import Json, column_to_json

if TYPE_CHECKING:
    pass

# --- tables of text ------------------------------------------------------------------------------


def describe_result(result: Result) -> str:
    """How many rows a result has and where they come from."""
    place = f"branch {result.branch}" if result.snapshot is None else f"snapshot {result.snapshot}"
    return f"{format_total(len(result), 'row')} from {place} via {result.query_name}"


def table_lines(result: Result, layout: Layout = Layout()) -> Iterator[str]:  # noqa: B008 - it is frozen
    """The whole result, row by row; it is gone through twice, so that no part of it is kept."""
    yield describe_result(result)
    if not result.columns:
        yield "(no rows)"
        return
    yield from render_grid(_layout_columns(result, layout.widest), _format_cells(result), wraps=layout.wraps)


def text_table(result: Result) -> str:
    """The first rows of a result, as wide as the terminal at most."""
    if not result.columns:
        return "\n".join(table_lines(result))
    first = replace(result, _held=result.table.slice(0, FIRST_ROWS))
    columns = fit_columns(_layout_columns(first), shutil.get_terminal_size().columns)
    return "\n".join(
        [
            describe_result(result),
            *render_grid(columns, _format_cells(first)),
            *_describe_hidden(result, len(columns)),
        ]
    )


def _layout_columns(result: Result, widest: int = WIDEST) -> list[Column]:
    names = [escape_invisible(name) for name in result.columns]
    return measure_columns(names, (type_.is_numeric for type_ in result.types), _format_cells(result), widest)


def _describe_hidden(result: Result, shown_columns: int) -> Iterator[str]:
    """What is not shown."""
    more = {"more row": len(result) - FIRST_ROWS, "more column": len(result.columns) - shown_columns}
    parts = [format_count(count, word) for word, count in more.items() if count > 0]
    if parts:
        yield f"… {', '.join(parts)}"


def _format_cells(result: Result) -> Iterator[list[list[str]]]:
    """The values of each column on one line each, some rows at a time."""
    for batch in result.batches():
        yield [
            [format_value(value) for value in column_to_json(column, type_)]
            for column, type_ in zip(batch.columns, result.types, strict=True)
        ]


# --- tables of HTML ------------------------------------------------------------------------------


def html_table(result: Result) -> str:
    """The first rows of a result for a notebook."""
    first = result.table.slice(0, FIRST_ROWS)
    columns = [
        [None if value is None else format_value(value) for value in column_to_json(column, type_)]
        for column, type_ in zip(first.columns, result.types, strict=True)
    ]
    headings = [
        Heading(name, type_.is_numeric) for name, type_ in zip(result.columns, result.types, strict=True)
    ]
    return render_html_table(
        describe_result(result), headings, zip(*columns, strict=True), _describe_hidden(result, len(columns))
    )


Row = dict[str, Json]


_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = ((day - _EPOCH).days for day in (date.min, date.max))
_PLAIN = INTEGERS | {Scalar.STRING, Scalar.BOOL}
"""Kinds of values that are the same in Python and in JSON."""


@dataclass(frozen=True, slots=True)
class OneRow:
    """At most one row of columns in memory; converted to Arrow on demand."""

    columns: Sequence[pa.Array]
    place: int
    """Where in the columns it is; negative when there is none."""
    schema: pa.Schema

    def table(self) -> pa.Table:
        """The row as a table."""
        arrays = [
            column.slice(max(self.place, 0), len(self)).cast(field.type)
            for column, field in zip(self.columns, self.schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def tuples(self, types: Sequence[ValueType]) -> list[tuple[Json, ...]]:
        """The row as JSON values."""
        place = self.place
        if place < 0:
            return []
        return [
            tuple(
                [
                    column[place].as_py()
                    if type_.scalar in _PLAIN and not type_.is_list
                    else column_to_json(column.slice(place, 1), type_)[0]
                    for column, type_ in zip(self.columns, types, strict=True)
                ]
            )
        ]

    def __len__(self) -> int:
        return int(self.place >= 0)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Result(ResultNames):
    """The rows that a read found; they do not change, whatever is written afterwards.

    Values in rows are as JSON has them. Columns may share a name: the last of them is in the rows, all
    of them are in `tuples` and in Arrow.
    """

    _held: pa.Table | OneRow
    types: tuple[ValueType, ...]
    """The type of each column."""
    query_name: str
    branch: str | None
    """The branch that was read, if one was asked for as it is now."""
    snapshot: str | None
    """The id of the snapshot that was read, if one of the past was asked for."""
    graph_commit_id: str | None
    """The newest commit that was visible; a later write can be made conditional on it."""

    @property
    def table(self) -> pa.Table:
        """The rows as they are in Arrow."""
        return self._held.table() if isinstance(self._held, OneRow) else self._held

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in the order of the query."""
        schema: pa.Schema = self._held.schema
        return schema.names  # type: ignore[no-any-return]

    @property
    def target(self) -> dict[str, str | None]:
        """What was read: a branch or a snapshot."""
        return {"branch": self.branch, "snapshot": self.snapshot}

    def rows(self) -> list[Row]:
        """All rows, each a dictionary by column name."""
        names = self.columns
        return [dict(zip(names, values, strict=True)) for values in self.tuples()]

    def tuples(self) -> list[tuple[Json, ...]]:
        """All rows, each a tuple in the order of the columns."""
        if isinstance(self._held, OneRow):
            return self._held.tuples(self.types)
        return [values for batch in self.batches() for values in self._batch_values(batch)]

    def one(self) -> Row:
        """The only row; it is an error when there is none or more than one."""
        if len(self) != 1:
            raise QueryError(
                f"'{self.query_name}' gave {format_count(len(self), 'row')} where one was expected",
                remedy="take all of them with `rows()`",
            )
        return self.rows()[0]

    def scalar(self) -> Json:
        """The only value; it is an error when there is not exactly one row of one column."""
        if len(self.columns) != 1:
            columns = format_count(len(self.columns), "column")
            raise QueryError(
                f"'{self.query_name}' gave {columns} where one was expected",
                remedy="return one value, or take the row with `one()`",
            )
        return self.one()[self.columns[0]]

    def batches(self, size: int = 8192) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches of at most so many rows each; nothing is copied."""
        most = require_whole("the size of a batch", size, 1)
        return iter(self.table.to_batches(max_chunksize=min(most, max(1, len(self)))))

    def to_arrow(self) -> pa.Table:
        """The result as a `pyarrow.Table`; nothing is copied."""
        return self.table

    def to_pandas(self) -> Any:
        """The result as a `pandas.DataFrame`; whole numbers and Booleans stay exact where some are null.

        A column with a date that Python has none for, such as one beyond the year 9999, is `datetime64[s]`.
        """
        kinds = _pandas_types(_import_package("pandas"))
        # Arrow finds pandas' type of a column by its name, so each has one of its own on the way.
        columns = [_with_any_date(column) for column in self.table.columns]
        numbered = pa.table(columns, names=[str(at) for at in range(len(columns))])
        frame = numbered.to_pandas(types_mapper=kinds.get)
        frame.columns = self.columns
        return frame

    def to_polars(self) -> Any:
        """The result as a `polars.DataFrame`."""
        polars = _import_package("polars")
        name, times = Counter(self.columns).most_common(1)[0] if self.columns else ("", 0)
        if times > 1:
            raise BadRequest(
                f"{times} columns are called '{name}', which polars does not allow",
                remedy="give each a name of its own with `as`",
            )
        return polars.from_arrow(self.table)

    def about(self) -> dict[str, Any]:
        """What was asked, of what, and how many rows came of it."""
        return {"query_name": self.query_name, "target": self.target, "row_count": len(self)}

    def envelope(self) -> dict[str, Any]:
        """The result as servers and scripts exchange it."""
        columns = {"columns": self.columns} if self.columns else {}
        commit = {} if self.graph_commit_id is None else {"graph_commit_id": self.graph_commit_id}
        return {**self.about(), **columns, "rows": self.rows(), **commit}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Row]:
        names = self.columns
        for batch in self.batches():
            for values in self._batch_values(batch):
                yield dict(zip(names, values, strict=True))

    def __repr__(self) -> str:
        return text_table(self)

    def _repr_html_(self) -> str:
        return html_table(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """As a stream of Arrow: as they are, a few rows would bring along the columns they are from."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        facts = (self.types, self.query_name, self.branch, self.snapshot, self.graph_commit_id)
        return _from_stream, (sink.getvalue().to_pybytes(), *facts)

    def _batch_values(self, batch: pa.RecordBatch) -> Iterator[tuple[Json, ...]]:
        return zip(*map(column_to_json, batch.columns, self.types), strict=True)


def _from_stream(stream: bytes, *facts: Any) -> Result:
    """A result that was pickled."""
    with pa.ipc.open_stream(stream) as reader:
        return Result(reader.read_all(), *facts)


def _import_package(name: str) -> Any:
    """A package that omnigraph can do without."""
    try:
        return import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise MissingExtra(f"to_{name}", package=name) from missing


def _with_any_date(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of dates as moments, where it has one out of range of Python's dates."""
    is_list = pa.types.is_list(column.type)
    if not pa.types.is_date32(column.type.value_type if is_list else column.type):
        return column
    days = pc.list_flatten(column) if is_list else column
    least, most = pc.min_max(days.cast(pa.int32())).values()
    if least.as_py() is None or (least.as_py() >= _FIRST_DAY and most.as_py() <= _LAST_DAY):
        return column
    return column.cast(pa.list_(pa.timestamp("s")) if is_list else pa.timestamp("s"))


def _pandas_types(pandas: Any) -> dict[pa.DataType, Any]:
    """The pandas types of columns that would become floats or objects as soon as one value is null."""
    return {
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.uint32(): pandas.UInt32Dtype(),
        pa.uint64(): pandas.UInt64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }
