"""Loads in this process: files of records, checked as a whole and committed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from omnigraph.engine.lineage import Commit
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Append, Effect, Replace, Upsert
from omnigraph.engine.schema_files import LiveSchema
from omnigraph.engine.write.change import Changes
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.faults import Faults, rejection, violations_of
from omnigraph.engine.write.ids import LoadIds
from omnigraph.engine.write.read import LoadReader, SplitRows, gathered
from omnigraph.engine.write.sets import check_load
from omnigraph.engine.write.splits import Split, splits
from omnigraph.engine.write.target import Target
from omnigraph.engine.write.transaction import Author, Prepared, Transaction, write
from omnigraph.engine.write.violations import Violation
from omnigraph.errors import BadRequest, LoadRejected

VIOLATIONS_TOLD = 100

Progress = Callable[[int, int], None]
"""Hears how many bytes and lines were read so far."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load did; counts are input rows by type."""

    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    commit: Commit | None
    skipped: tuple[Violation, ...] = ()
    """Rows that were left out because they are wrong, when that was asked for."""
    branch_created: bool = False
    """Whether the load made its branch first."""

    @property
    def total(self) -> int:
        """All rows of the input."""
        return sum(self.nodes.values()) + sum(self.edges.values())


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Files and what to do with them."""

    files: tuple[Path, ...]
    mode: Mode
    skip_bad: bool = False
    progress: Progress | None = field(default=None, repr=False, compare=False)


def load(graph: OpenGraph, request: LoadRequest, author: Author) -> LoadResult:
    """Load files on a branch: all types and files in one commit, or nothing."""
    ids = LoadIds(graph.root.clock() // 1000)
    seen: list[_Input] = []

    def prepare(transaction: Transaction) -> Prepared:
        # Files are read once: a load that has to be prepared again may do so with the branch's lock in hand.
        if not seen or seen[-1].schema != transaction.schema:
            seen.append(_Input(transaction.schema, request, ids))
        return seen[-1].prepared(transaction)

    receipt = write(graph, author, prepare)
    return seen[-1].result(receipt.commit if receipt else None)


class _Input:
    """The rows of a load, read by one schema; they can be checked against any state of the branch."""

    def __init__(self, schema: LiveSchema, request: LoadRequest, ids: LoadIds) -> None:
        self.schema = schema
        self._request = request
        self._reader = LoadReader(schema.accepted, ids)
        parts = list(self._parts())
        self._left_out: tuple[Faults, ...] = ()
        self._unread = tuple(wrong for part in parts for wrong in part.violations)
        self._skipped = self._unread
        if self._unread and not request.skip_bad:
            raise LoadRejected(self._unread[:VIOLATIONS_TOLD], total=len(self._unread), remedy=_REMEDY)
        self.rows = gathered(parts, self._reader.targets, (str(path) for path in request.files))

    def _parts(self) -> Iterable[SplitRows]:
        size = lines = 0
        for split in _splits(self._request.files):
            part = self._reader.read(split)
            size, lines = size + len(split.data), lines + part.lines
            if self._request.progress is not None:
                self._request.progress(size, lines)
            yield part

    def prepared(self, transaction: Transaction) -> Prepared:
        mode = self._request.mode
        checked = check_load(
            self.rows, mode, transaction.targets, transaction.stored, skip_bad=self._request.skip_bad
        )
        origins = {key: rows.origins for key, rows in self.rows.items()}
        if checked.faults:
            raise rejection(checked.faults, origins, VIOLATIONS_TOLD)
        dropped = checked.dropped
        told = violations_of(dropped, origins, sum(map(len, dropped))) if dropped else ()
        self._skipped, self._left_out = (*self._unread, *told), dropped
        return Prepared("Load", _effects(checked.changes, mode), strict=mode is Mode.OVERWRITE)

    def result(self, commit: Commit | None) -> LoadResult:
        return LoadResult(
            nodes=self._counts("node"),
            edges=self._counts("edge"),
            commit=commit,
            skipped=self._skipped,
        )

    def _counts(self, kind: str) -> dict[str, int]:
        chosen = (one for one in self.rows.values() if one.target.kind == kind)
        return {one.target.name: one.rows.num_rows - self._missing(one.target) for one in chosen}

    def _missing(self, target: Target) -> int:
        rows = [faults.rows for faults in self._left_out if faults.target.key == target.key]
        return len(np.unique(np.concatenate(rows))) if rows else 0


_REMEDY = "mend the records named, or leave them out with --skip-bad"


def _effects(changes: Changes, mode: Mode) -> dict[str, Effect]:
    effects: dict[str, Effect] = {}
    for key, change in changes.items():
        if mode is Mode.OVERWRITE:
            effects[key] = Replace(change.rows)
        elif change.rows.num_rows:
            effects[key] = Append(change.rows) if mode is Mode.APPEND else Upsert(change.rows)
    return effects


def _splits(files: Sequence[Path]) -> Iterable[Split]:
    for number, path in enumerate(files):
        try:
            with path.open("rb") as stream:
                yield from splits(stream, str(path), number)
        except OSError as failure:
            raise BadRequest(
                f"cannot read '{path}': {failure.strerror}", remedy="check the path"
            ) from failure
