"""A load of any size: its rows wait in files while they are checked, and then become parts of tables.

Memory follows the size of a task, never that of the load. The tasks are those of a runner; what comes back
from them are counts, places and what is wrong.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.plan import AppendRows, Effect, ReplaceRows, UpsertRows
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.constraints.faults import NO_ROW, choose_remedy, count_by_kind, rank_ids
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.table_types import SYSTEM_COLUMNS
from omnigraph.engine.load.checks.check_rounds import CheckRounds
from omnigraph.engine.load.checks.check_scope import (
    Breaches,
    CheckScope,
    CheckTask,
    Dropped,
    mark_kept_rows,
    merge_positions,
    split_positions,
)
from omnigraph.engine.load.checks.patch_checks import match_stored_rows
from omnigraph.engine.load.large_patch import complete_items
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.replaced_rows import match_pieces
from omnigraph.engine.load.request import StageReport, sum_nulls
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.staging import (
    StagedItem,
    StagedType,
    count_lines_before,
    read_lines,
    read_violations,
    stage_item,
)
from omnigraph.engine.rows.violations import Numbers, Violation, format_entity
from omnigraph.engine.tasks.runner import LocalRunner, Runner
from omnigraph.engine.upkeep.index_catch_up import build_parts_with
from omnigraph.engine.write.transaction import PreparedWrite, Transaction
from omnigraph.errors import KeyConflict, LoadRejected, OmnigraphError
from omnigraph.progress import Stage, stage
from omnigraph.storage.index_parts import BuildParts
from omnigraph.storage.pieces import Piece, Pieces, read_piece_rows, write_pieces


@dataclass(frozen=True, slots=True)
class LocatedBreach:
    """One breach and its violation."""

    breaches: Breaches
    entity: str
    violation: Violation


@dataclass(frozen=True, slots=True)
class BreachLocator:
    """Where the rows of a load came from."""

    job: LoadJob
    items: Sequence[StagedItem]
    before: Mapping[int, int]
    """For each item, by number, how many lines of its file come before it."""

    def in_order(self, breaches: Sequence[Breaches]) -> Iterator[LocatedBreach]:
        """Those that have words; breaches about stored rows come last."""
        if not breaches:
            return
        lines = [self._read_lines(one) for one in breaches]
        group = np.repeat(np.arange(len(breaches)), [len(one.positions) for one in breaches])
        within = np.concatenate([np.arange(len(one.positions)) for one in breaches])
        for at in self._sort_order(breaches, lines, group).tolist():
            one, place = breaches[group[at]], int(within[at])
            yield self._locate_breach(one, place, int(lines[group[at]][place]))

    def _sort_order(self, breaches: Sequence[Breaches], lines: Sequence[Numbers], group: Numbers) -> Numbers:
        """By file and line, then by type and rule; those about stored rows by type, rule and id."""
        files, far, ids = [], [], []
        for one, line in zip(breaches, lines, strict=True):
            known = one.positions != NO_ROW
            items = split_positions(one.positions)[0]
            files.append(np.where(known, self._file_numbers[items], 0))
            far.append(np.where(known, self._lines_before[items] + line, 0))
            ids.append(np.where(known, 0, rank_ids(one.ids)))
        kinds = sorted({(one.key, one.place) for one in breaches})
        rank = np.array([kinds.index((one.key, one.place)) for one in breaches])
        stored = np.concatenate([one.positions == NO_ROW for one in breaches])
        return np.lexsort(
            (np.concatenate(ids), rank[group], np.concatenate(far), np.concatenate(files), stored)
        )

    @property
    def _file_numbers(self) -> Numbers:
        return np.array([one.item.file_number for one in self.items], np.int64)

    @property
    def _lines_before(self) -> Numbers:
        return np.array([self.before[one.item.number] for one in self.items], np.int64)

    def _read_lines(self, one: Breaches) -> Numbers:
        """The lines of rows, counted from the beginning of their items."""
        known = one.positions != NO_ROW
        items, rows = split_positions(one.positions)
        lines = np.zeros(len(rows), np.int64)
        for number in np.unique(items[known]).tolist():
            chosen = np.flatnonzero(known & (items == number))
            staged = next(found for found in self.items[number].types if found.key == one.key)
            lines[chosen] = read_lines(self.job, number, staged, rows[chosen])
        return lines

    def _locate_breach(self, one: Breaches, place: int, line: int) -> LocatedBreach:
        entity, reason = one.ids[place].as_py(), one.reasons[place].as_py()
        name, position = format_entity(one.about or one.key, entity), int(one.positions[place])
        if position == NO_ROW:
            return LocatedBreach(one, entity, Violation(None, None, name, reason))
        staged = self.items[position >> 32]
        item, line = staged.locate(line)
        group, at = item.place(line, self.before[staged.item.number])
        return LocatedBreach(one, entity, Violation(item.file, at, name, reason, group))


_log = logging.getLogger(__name__)


class LargeLoad:
    """The rows of a load in files, read by one schema, to be checked against any state of the branch."""

    def __init__(
        self,
        job: LoadJob,
        runner: Runner,
        items: Sequence[Item] | Sequence[StagedItem],
        mode: Mode,
        *,
        skip_bad: bool,
    ) -> None:
        self.job = job
        self.runner = runner
        self.mode = mode
        self.skip_bad = skip_bad
        self.reports: list[StageReport] = []
        self._dropped: Dropped = {}
        self._left_out: list[Breaches] = []
        self._refused: Sequence[Breaches] = ()
        try:
            self._items = self._stage_items(items)
        except BaseException:
            # The caller does not hold this load yet and cannot close it.
            self.close()
            raise
        self._places = BreachLocator(job, self._items, count_lines_before(self._items))

    def _stage_items(self, given: Sequence[Item] | Sequence[StagedItem]) -> list[StagedItem]:
        """The items after the tasks have read them, unless others have done so before."""
        if staged := [one for one in given if isinstance(one, StagedItem)]:
            return staged
        items = [one for one in given if isinstance(one, Item)]
        size = sum(item.size for item in items)
        with self._time_stage("read", len(items)) as counted, stage("read", size=size) as reading:
            self.job.begin()
            answers = self.runner.each("read", items, partial(_stage_in_task, job=self.job))
            found = sorted(_report_progress(answers, reading), key=lambda one: one.item.number)
            counted.update(rows=_count_rows(found).total(), bytes=size)
        return found

    def counts(self) -> dict[str, int]:
        """The input rows of each type that are loaded."""
        return {
            key: rows - len(self._dropped.get(key, ()))
            for key, rows in sorted(_count_rows(self._items).items())
        }

    @property
    def nulls(self) -> Mapping[str, int]:
        """How many values of columns are missing, by type and property."""
        return sum_nulls(staged for one in self._items for staged in one.types)

    @property
    def row_violation_counts(self) -> Counter[str]:
        """How many violations single rows have, by kind."""
        return sum((one.wrong for one in self._items), Counter())

    def row_violations(self) -> Iterator[Violation]:
        """What is wrong with single rows, in input order, as far as it is reported."""
        for one in self._items:
            found = read_violations(self.job, one.item.number, one.notes) if one.notes else one.violations
            for violation in found:
                yield violation.moved(self._places.before[one.item.number])

    @property
    def skipped_counts(self) -> Counter[str]:
        """How many violations the rules about several rows have, by kind."""
        return count_by_kind((one.rule, one.total) for one in self._left_out)

    def skipped_violations(self) -> Iterator[Violation]:
        """What is wrong with rows that were left out by those rules, in input order."""
        return (one.violation for one in self._places.in_order(self._left_out))

    def rejected_violations(self) -> Iterator[Violation]:
        """Why the load cannot be by those rules, when it was refused by one, in input order."""
        return (one.violation for one in self._places.in_order(self._refused))

    # --- against a state of the branch -----------------------------------------------------------

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        """The effects of the load on a branch as it is, or why it must not be."""
        # The rows of a patch replace the stored ones once they are whole.
        mode = Mode.MERGE if self.mode is Mode.PATCH else self.mode
        task = CheckTask(self.job, mode, transaction.targets)
        scope = CheckScope(self.runner, task, self._items, transaction.entry)
        self._dropped, self._left_out, self._refused = {}, [], ()
        if self.mode is Mode.PATCH:
            scope = self._complete_patch(scope)
        rounds = CheckRounds(scope)
        while True:
            with self._time_stage("check", len(self._items)):
                checked = rounds.run(self._dropped)
            if not checked.breaches:
                break
            self._require_skippable(checked.breaches)
            # Without these rows stored ones may count again that others relied on to go: check again.
            self._drop_rows(checked.breaches)
        gone = merge_positions(self._dropped, checked.losers)
        with self._time_stage("arrange", len(gone)):
            effects = dict(self._build_effects(transaction, scope, gone))
        return PreparedWrite(
            "Load",
            effects,
            strict=self.mode in (Mode.OVERWRITE, Mode.PATCH),
            reads=transaction.reads.union(scope.keys),
            build=self._build,
        )

    def _complete_patch(self, scope: CheckScope) -> CheckScope:
        """The same load with whole rows: what they omit is taken from the stored rows."""
        with self._time_stage("complete", len(self._items)):
            matched = match_stored_rows(scope)
            if matched.breaches:
                self._require_skippable(matched.breaches)
                self._drop_rows(matched.breaches)
            return replace(scope, items=complete_items(scope, matched.row_ids))

    def _require_skippable(self, breaches: Sequence[Breaches]) -> None:
        """Refuse the load, unless it goes on without the rows that break a rule."""
        if not self.skip_bad or any(one.final for one in breaches):
            self._refused = breaches
            raise self._build_rejection(breaches)

    @property
    def _build(self) -> BuildParts | None:
        """Who builds the indexes over loaded rows: the tasks of the load, if they run elsewhere."""
        return None if isinstance(self.runner, LocalRunner) else partial(build_parts_with, self.runner)

    def _drop_rows(self, breaches: Iterable[Breaches]) -> None:
        for one in breaches:
            self._left_out.append(one)
            self._dropped = merge_positions(self._dropped, {one.key: one.rows})

    # --- what is written -------------------------------------------------------------------------

    def _build_effects(
        self, transaction: Transaction, scope: CheckScope, gone: Dropped
    ) -> Iterator[tuple[str, Effect]]:
        for key in scope.keys:
            schema = transaction.targets[key].schema
            left = self._remaining_pieces(scope.items, key, schema, gone.get(key))
            kept = Pieces(self.job.pieces(key), schema, left)
            if self.mode is Mode.OVERWRITE:
                if kept.rows or transaction.base.entries[key].row_count != 0:
                    yield key, ReplaceRows(kept)
            elif kept.rows and self.mode is Mode.APPEND:
                yield key, AppendRows(kept)
            elif kept.rows:
                yield (
                    key,
                    UpsertRows(match_pieces(self.runner, self.job, kept, transaction.base.entries[key])),
                )

    def _remaining_pieces(
        self, items: Sequence[StagedItem], key: str, schema: pa.Schema, gone: NDArray[np.int64] | None
    ) -> tuple[Piece, ...]:
        """The pieces of a type in input order; those with rows that do not count are rewritten."""
        staged = [(one.item.number, found) for one in items for found in one.types if found.key == key]
        if gone is None or not len(gone):
            return tuple(piece for _, found in staged for piece in found.pieces)
        touched = [(number, found) for number, found in staged if found.pieces and _has_any(gone, number)]
        task = partial(_rewrite_pieces, self.job, schema, gone)
        rewritten = dict(self.runner.each("leave out", touched, task))
        return tuple(piece for number, found in staged for piece in rewritten.get(number, found.pieces))

    # --- what is wrong ---------------------------------------------------------------------------

    def _build_rejection(self, breaches: Sequence[Breaches]) -> OmnigraphError:
        """A load that cannot be: a conflict when the first thing wrong is a stored id, else a list."""
        placed = list(islice(self._places.in_order(breaches), self.job.report_limit))
        reported, first = tuple(one.violation for one in placed), placed[0]
        counts = count_by_kind((one.rule, one.total) for one in breaches)
        if first.breaches.rule == "key_conflict":
            kind, name = split_key(first.breaches.key)
            total = counts.total()
            return KeyConflict(
                kind,
                name,
                first.entity,
                violations=reported,
                total=total,
                counts=counts,
                remedy=first.breaches.remedy,
            )
        remedy = choose_remedy(first.breaches.remedy, final=any(one.final for one in breaches))
        return LoadRejected(reported, total=counts.total(), counts=counts, remedy=remedy)

    @contextmanager
    def _time_stage(self, name: str, tasks: int) -> Iterator[dict[str, int]]:
        begun = time.monotonic()
        counted: dict[str, int] = {}
        yield counted
        self.reports.append(StageReport(name, tasks, time.monotonic() - begun, **counted))

    def close(self) -> None:
        """Remove every file of the load that did not become part of a table; the load is over by now."""
        try:
            self.job.discard()
        except OmnigraphError as failure:
            _log.warning("the files of a load are left in '%s' for cleanup: %s", self.job.place, failure)


def _stage_in_task(item: Item, job: LoadJob) -> StagedItem:
    """Stage an item; a task may outlive a load that was abandoned."""
    done = stage_item(item, job)
    job.require()
    return done


def _count_rows(items: Iterable[StagedItem]) -> Counter[str]:
    """How many rows of each type are fine by themselves."""
    counts: Counter[str] = Counter()
    for one in items:
        counts.update({staged.key: staged.rows for staged in one.types})
    return counts


def _report_progress(answers: Iterable[StagedItem], reading: Stage) -> Iterator[StagedItem]:
    for one in answers:
        reading.advance(rows=sum(staged.rows for staged in one.types), size=one.item.size)
        yield one


def _has_any(gone: NDArray[np.int64], item: int) -> bool:
    first, last = np.searchsorted(gone, [item << 32, (item + 1) << 32])
    return bool(last > first)


def _rewrite_pieces(
    job: LoadJob, schema: pa.Schema, gone: NDArray[np.int64], one: tuple[int, StagedType]
) -> tuple[int, tuple[Piece, ...]]:
    """The pieces of one item without some of its rows."""
    number, staged = one
    access, place = job.root.tables.access, job.pieces(staged.key)
    kept = mark_kept_rows(number, staged.rows, gone)
    if kept is None:
        return number, staged.pieces
    written: list[Piece] = []
    ids = SYSTEM_COLUMNS[split_key(staged.key)[0]]
    for piece in staged.pieces:
        own, kept = kept[: piece.rows], kept[piece.rows :]
        if own.all():
            written.append(piece)
        elif own.any():
            rows = read_piece_rows(access, Pieces(place, schema, (piece,))).read_all()
            written += write_pieces(access, place, rows.filter(pa.array(own)), ids)
    return number, tuple(written)
