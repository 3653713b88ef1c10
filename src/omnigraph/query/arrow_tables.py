"""A type of a snapshot as a dataset of Arrow, which reads the columns and rows that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import explain_failure, find_key, open_table
from omnigraph.errors import BadRequest, OmnigraphError, StorageFailure
from omnigraph.storage.blobs import is_blob
from omnigraph.storage.tables import Table

_Columns = Sequence[str] | Mapping[str, pc.Expression]


class EntityDataset(ds.Dataset):  # type: ignore[misc]  # Arrow has no types
    """The nodes or edges of a type at one moment, for DuckDB, polars, pandas and others that scan datasets.

    Columns that are not asked for are not read. Conditions are evaluated while rows are read; those that
    storage has no form for, on the columns that they name. An edge has its ends as `src` and `dst`. Blobs
    are left out.
    """

    def __init__(self, opened: Callable[[], OpenGraph], snapshot: Snapshot, type_name: str) -> None:
        # Arrow's own is not called: there is no dataset of Arrow behind this one.
        self._opened = opened
        self._snapshot = snapshot
        self._key = find_key(snapshot, type_name)
        readable = [field for field in self._open().schema if not is_blob(field)]
        self._schema = pa.schema([field.remove_metadata() for field in readable])
        self.failure: OmnigraphError | None = None
        """The error of the last scan that failed, which other libraries report as a text only."""

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, pc.Expression] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> ds.Scanner:
        """A scan of some columns, and of the rows that satisfy a condition; for one run."""
        table = self._open()
        pushed = filter is not None and table.accepts_filter(filter)
        left = None if pushed else filter
        read = self._columns_to_read(columns, left)
        schema = pa.schema([self._schema.field(name) for name in read])
        batches = self._read(table, read, filter if pushed else None)
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return ds.Scanner.from_batches(reader, columns=_as_list(columns), filter=left, **options)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """How many rows satisfy a condition; without one, nothing is read."""
        if filter is None:
            return self._open().count()
        return int(self.scanner(columns=[], filter=filter, **options).count_rows())

    def get_fragments(self, filter: pc.Expression | None = None) -> NoReturn:
        """Refused: a type has no files of Arrow."""
        self._refuse("get_fragments")

    def filter(self, expression: pc.Expression) -> NoReturn:
        """Refused: pass the condition to `to_table` or `scanner`."""
        self._refuse("filter")

    def sort_by(self, sorting: object, **options: Any) -> NoReturn:
        """Refused: read the rows first."""
        self._refuse("sort_by")

    def join(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused: read the rows first."""
        self._refuse("join")

    def join_asof(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused: read the rows first."""
        self._refuse("join_asof")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Refused: the columns are those of the type."""
        self._refuse("replace_schema")

    @property
    def partition_expression(self) -> pc.Expression:
        """What holds for all rows: nothing."""
        return pc.scalar(True)

    def __repr__(self) -> str:
        name, columns = self._key.partition(":")[2], ", ".join(self._schema.names)
        return f"<{name} of snapshot {self._snapshot.id}: {columns}>"

    def _open(self) -> Table:
        return open_table(self._opened(), self._snapshot, self._key)

    def _columns_to_read(self, columns: _Columns | None, condition: pc.Expression | None) -> list[str]:
        """The columns that are asked for and those that a condition or expression names."""
        if columns is None:
            return self._schema.names  # type: ignore[no-any-return]  # Arrow has no types
        if isinstance(columns, Mapping):
            named, texts = frozenset[str](), [str(expression) for expression in columns.values()]
        else:
            named, texts = frozenset(columns), []
        self._require_columns(named)
        if condition is not None:
            texts.append(str(condition))
        # An expression shows its columns in its text alone. A name that is there by chance costs time only.
        read = [name for name in self._schema.names if name in named or any(name in text for text in texts)]
        return read or ["id"]

    def _require_columns(self, named: frozenset[str]) -> None:
        for name in sorted(named.difference(self._schema.names)):
            raise BadRequest(
                f"'{self._key.partition(':')[2]}' has no column '{name}'",
                remedy=f"it has: {', '.join(self._schema.names)}",
            )

    def _read(
        self, table: Table, columns: list[str], condition: pc.Expression | None
    ) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([self._schema.field(name) for name in columns])
        try:
            for batch in table.batches(columns, where=condition, ordered=False):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
        except StorageFailure as failure:
            self.failure = explain_failure(self._opened(), self._snapshot, self._key, failure)
            raise self.failure from failure

    def _refuse(self, method: str) -> NoReturn:
        raise BadRequest(
            f"'{method}' is not offered for the rows of a type", remedy="read them first, with `to_table()`"
        )


def _as_list(columns: _Columns | None) -> _Columns | None:
    return columns if columns is None or isinstance(columns, Mapping) else list(columns)
