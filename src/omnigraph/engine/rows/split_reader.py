"""A split of a load from its bytes to checked rows; what a task does, in this process or in another."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import TableType, table_types_of
from omnigraph.engine.rows.blobs import Refusal, reject_external
from omnigraph.engine.rows.ids import IdSource
from omnigraph.engine.rows.lines import Limits, Split
from omnigraph.engine.rows.ndjson import parse_split
from omnigraph.engine.rows.row_builder import CheckedRows, build_rows
from omnigraph.engine.rows.violations import Flags, Origins, Violation
from omnigraph.lang.schema.identity import AcceptedSchema


@dataclass(frozen=True)
class LoadReader:
    """Reads splits of one load; it travels to other processes."""

    accepted: AcceptedSchema
    ids: IdSource
    limits: Limits = field(default_factory=Limits)
    external: Refusal = reject_external
    targets: Mapping[str, TableType] = field(default_factory=dict)
    """By table; filled in from the schema."""

    def __post_init__(self) -> None:
        if not self.targets:
            object.__setattr__(self, "targets", table_types_of(self.accepted))

    def read(self, split: Split) -> SplitRows:
        """The rows of a split."""
        with _collection_paused():
            return self._read(split)

    def _read(self, split: Split) -> SplitRows:
        parsed = parse_split(split, self.accepted.catalog, self.limits)
        shaped = [
            build_rows(found, self.targets[found.key], self.ids, external=self.external)
            for found in parsed.records
        ]
        violations = [*parsed.violations, *(wrong for it in shaped for wrong in it.violations)]
        violations.sort(key=lambda wrong: wrong.line or 0)
        return SplitRows(tuple(shaped), tuple(violations), parsed.lines)


@contextmanager
def _collection_paused() -> Iterator[None]:
    """Without the search for cycles: a split is a great many objects for a moment, and none is in one."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True)
class SplitRows:
    """What a split holds."""

    shaped: tuple[CheckedRows, ...]
    violations: tuple[Violation, ...]
    """Everything wrong with single rows, in input order."""
    lines: int

    def without_violations(self) -> SplitRows:
        """Only the rows that are fine: a load keeps no more violations than it reports."""
        shaped = tuple(replace(one, violations=()) for one in self.shaped)
        return replace(self, shaped=shaped, violations=())


@dataclass(frozen=True, slots=True)
class LoadRows:
    """All rows of one type in a load, in input order."""

    target: TableType
    rows: pa.Table
    generated: Flags
    origins: Origins


def collect_rows(
    parts: Iterable[SplitRows], targets: Mapping[str, TableType], files: Iterable[str]
) -> dict[str, LoadRows]:
    """The rows of splits given in input order, by table."""
    names = tuple(files)
    found: dict[str, list[CheckedRows]] = {}
    for part in parts:
        for shaped in part.shaped:
            found.setdefault(shaped.key, []).append(shaped)
    return {key: _concat(targets[key], found[key], names) for key in sorted(found)}


def _concat(target: TableType, parts: list[CheckedRows], files: tuple[str, ...]) -> LoadRows:
    numbers = [np.broadcast_to(np.int64(part.file_number), part.count) for part in parts]
    return LoadRows(
        target,
        pa.Table.from_batches([part.rows for part in parts], schema=target.schema),
        np.concatenate([part.generated for part in parts]),
        Origins(files, np.concatenate(numbers), np.concatenate([part.lines for part in parts])),
    )
