"""Loads in this process: files of records, checked as a whole and committed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from omnigraph.engine.branches import branch_name
from omnigraph.engine.lineage import Commit
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Append, Effect, Replace, Upsert
from omnigraph.engine.schema_files import LiveSchema
from omnigraph.engine.write.change import Changes
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.faults import Faults, rejection, violations_of
from omnigraph.engine.write.ids import LoadIds
from omnigraph.engine.write.new_branch import new_branch
from omnigraph.engine.write.read import LoadReader, SplitRows, gathered
from omnigraph.engine.write.rejects import (
    VIOLATIONS_TOLD,
    RejectsFile,
    Tally,
    rejects_file,
    unreadable,
)
from omnigraph.engine.write.sets import check_load
from omnigraph.engine.write.splits import Split, splits
from omnigraph.engine.write.target import Target
from omnigraph.engine.write.transaction import Author, Prepared, Transaction, begin, write
from omnigraph.engine.write.violations import Origins, Violation
from omnigraph.errors import BadRequest, LoadRejected

Progress = Callable[[int, int], None]
"""Hears how many bytes and lines were read so far."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load did; counts are input rows by type."""

    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    commit: Commit | None
    skipped: tuple[Violation, ...] = ()
    """The first of what is wrong with rows that were left out, when that was asked for."""
    skipped_counts: Mapping[str, int] = field(default_factory=dict)
    """How many violations there are in all, by kind: `record`, `value`, `key_conflict`, `unique`,
    `endpoint`, `cardinality`."""
    branch_created: bool = False
    """Whether the load made its branch first."""

    @property
    def total(self) -> int:
        """All rows that were loaded."""
        return sum(self.nodes.values()) + sum(self.edges.values())

    @property
    def skipped_total(self) -> int:
        """How many violations there are in all."""
        return sum(self.skipped_counts.values())


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Files and what to do with them."""

    files: tuple[Path, ...]
    mode: Mode
    skip_bad: bool = False
    rejects: Path | None = None
    """Where all that is left out goes, with the reasons."""
    progress: Progress | None = field(default=None, repr=False, compare=False)


def load(graph: OpenGraph, request: LoadRequest, author: Author, *, from_: str | None = None) -> LoadResult:
    """Load files on a branch: all types and files in one commit, or nothing.

    A branch that is missing is made from `from_`, once the load is known to be right there.
    """
    if request.rejects is not None and not request.skip_bad:
        raise BadRequest(
            "a file for rejects needs a load that leaves records out", remedy="add --skip-bad (`skip_bad`)"
        )
    with rejects_file(request.rejects, request.files) as rejects:
        done = _load(graph, request, author, from_, rejects)
        if rejects is not None:
            rejects.keep()
    return done


def _load(
    graph: OpenGraph, request: LoadRequest, author: Author, from_: str | None, rejects: RejectsFile | None
) -> LoadResult:
    source = None
    if from_ is not None and author.branch not in graph.branch_names():
        source = branch_name(from_)
    ids = LoadIds(graph.root.clock() // 1000)
    first = begin(graph, author if source is None else replace(author, branch=source))
    # Files are read once, and before the branch's lock may be needed: others can write meanwhile.
    seen = [_Input(first.schema, request, ids, rejects)]

    def prepare(transaction: Transaction) -> Prepared:
        if seen[-1].schema != transaction.schema:
            seen.append(_Input(transaction.schema, request, ids, rejects))
        return seen[-1].prepared(transaction)

    if source is None:
        making: AbstractContextManager[bool] = nullcontext(False)
    else:
        # Checked on what the branch begins with: one that is refused makes no branch.
        seen[-1].prepared(first)
        making = new_branch(graph, author.branch, source)
    with making as created:
        receipt = write(graph, author, prepare)
    return replace(seen[-1].result(receipt.commit if receipt else None), branch_created=created)


class _Input:
    """The rows of a load, read by one schema; they can be checked against any state of the branch."""

    def __init__(
        self, schema: LiveSchema, request: LoadRequest, ids: LoadIds, rejects: RejectsFile | None
    ) -> None:
        self.schema = schema
        self._request = request
        self._rejects = rejects
        self._reader = LoadReader(schema.accepted, ids)
        self._unread = Tally()
        if rejects is not None:
            rejects.restart()
        parts = list(self._parts())
        self._dropped: tuple[Faults, ...] = ()
        if self._unread.total and not request.skip_bad:
            raise LoadRejected(self._unread.told, total=self._unread.total, remedy=_REMEDY)
        self.rows = gathered(parts, self._reader.targets, (str(path) for path in request.files))

    def _parts(self) -> Iterable[SplitRows]:
        size = lines = 0
        for split in _splits(self._request.files):
            part = self._reader.read(split)
            self._unread.add(part.violations)
            if self._rejects is not None:
                self._rejects.add_lines(part.violations, split)
            size, lines = size + len(split.data), lines + part.lines
            if self._request.progress is not None:
                self._request.progress(size, lines)
            yield part.without_violations()

    @property
    def _origins(self) -> dict[str, Origins]:
        return {key: rows.origins for key, rows in self.rows.items()}

    def prepared(self, transaction: Transaction) -> Prepared:
        mode = self._request.mode
        checked = check_load(
            self.rows, mode, transaction.targets, transaction.stored, skip_bad=self._request.skip_bad
        )
        if checked.faults:
            raise rejection(checked.faults, self._origins, VIOLATIONS_TOLD)
        self._dropped = checked.dropped
        if self._rejects is not None:
            files = {str(path): path for path in self._request.files}
            self._rejects.set_rest(violations_of(self._dropped, self._origins), files)
        return Prepared("Load", _effects(checked.changes, mode), strict=mode is Mode.OVERWRITE)

    def result(self, commit: Commit | None) -> LoadResult:
        counts = self._unread.counts.copy()
        for faults in self._dropped:
            counts[faults.rule] += len(faults)
        room = VIOLATIONS_TOLD - len(self._unread.told)
        return LoadResult(
            nodes=self._counts("node"),
            edges=self._counts("edge"),
            commit=commit,
            skipped=(*self._unread.told, *islice(violations_of(self._dropped, self._origins), room)),
            skipped_counts=dict(counts),
        )

    def _counts(self, kind: str) -> dict[str, int]:
        chosen = (one for one in self.rows.values() if one.target.kind == kind)
        return {one.target.name: one.rows.num_rows - self._missing(one.target) for one in chosen}

    def _missing(self, target: Target) -> int:
        rows = [faults.rows for faults in self._dropped if faults.target.key == target.key]
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
            raise unreadable(path, failure) from failure
