"""A load whose rows fit into memory: nothing is written before all of it is checked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from omnigraph.engine.commit.plan import AppendRows, Effect, ReplaceRows, UpsertRows
from omnigraph.engine.constraints.change_rules import check_load
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.constraints.faults import Faults, build_rejection, to_violations
from omnigraph.engine.constraints.table_change import Changes
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.load.request import StageReport, kinds_of, sum_nulls
from omnigraph.engine.load.small_patch import CompletedPatch, complete_patch
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.item_reader import read_files
from omnigraph.engine.rows.row_builder import LoadReader, SplitRows, collect_rows
from omnigraph.engine.rows.violations import MAX_REPORTED_VIOLATIONS, Origins, Violation
from omnigraph.engine.write.transaction import PreparedWrite, Transaction
from omnigraph.errors import KeyConflict, LoadRejected
from omnigraph.progress import begin_stage


class SmallLoad:
    """The rows of a load, read by one schema; they can be checked against any state of the branch.

    Every file is one item.
    """

    def __init__(
        self,
        reader: LoadReader,
        items: Sequence[Item],
        mode: Mode,
        *,
        skip_bad: bool,
        report_limit: int | None,
    ) -> None:
        self._items = {item.file: item for item in items}
        self._mode = mode
        self._skip_bad = skip_bad
        self._report_limit = report_limit
        self._violations: list[Violation] = []
        self._counts: Counter[str] = Counter()
        self._dropped: tuple[Faults, ...] = ()
        self._refused: tuple[Faults, ...] = ()
        begun = time.monotonic()
        parts = list(self._read_parts(reader, items))
        self.nulls = sum_nulls(shaped for part in parts for shaped in part.shaped)
        self._rows = collect_rows(parts, reader.targets, _name_files(items))
        read = sum(one.rows.num_rows for one in self._rows.values())
        size = sum(item.size for item in items)
        self.reports = [StageReport("read", len(items), time.monotonic() - begun, read, size)]

    def _read_parts(self, reader: LoadReader, items: Sequence[Item]) -> Iterator[SplitRows]:
        reading = begin_stage("read", tasks=len(items), size=sum(item.size for item in items))
        seen = -1
        for found in read_files(items, reader):
            part, begun = found.rows, [item for item in found.items if item.file_number > seen]
            seen = found.items[-1].file_number
            self._add_violations(part.violations)
            reading.advance(rows=part.lines, tasks=len(begun), size=sum(item.size for item in begun))
            yield part.without_violations()
        reading.end()

    def _add_violations(self, found: Sequence[Violation]) -> None:
        room = None if self._report_limit is None else max(0, self._report_limit - len(self._violations))
        self._violations += found[:room]
        self._counts.update(kinds_of(found))

    @property
    def row_violation_counts(self) -> Counter[str]:
        """How many violations single rows have, by kind."""
        return self._counts

    def row_violations(self) -> Iterator[Violation]:
        """What is wrong with single rows, in input order, as far as it is reported."""
        return iter(self._violations)

    @property
    def skipped_counts(self) -> Counter[str]:
        """How many violations the rules about several rows have, by kind."""
        counts: Counter[str] = Counter()
        for faults in self._dropped:
            counts[faults.rule] += len(faults)
        return counts

    def skipped_violations(self) -> Iterator[Violation]:
        """What is wrong with rows that were left out by those rules, in input order."""
        return self._locate_violations(to_violations(self._dropped, self._origins))

    def rejected_violations(self) -> Iterator[Violation]:
        """Why the load cannot be by those rules, when it was refused by one, in input order."""
        return self._locate_violations(to_violations(self._refused, self._origins))

    def _locate_violations(self, found: Iterable[Violation]) -> Iterator[Violation]:
        for one in found:
            item = None if one.file is None else self._items[one.file]
            yield one if item is None else item.placed([one])[0]

    @property
    def _origins(self) -> dict[str, Origins]:
        return {key: rows.origins for key, rows in self._rows.items()}

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        """The effects of the load on a branch as it is, or why it must not be."""
        begun = time.monotonic()
        patch = complete_patch(self._rows, transaction) if self._mode is Mode.PATCH else None
        if patch is not None and patch.faults and not self._skip_bad:
            self._dropped, self._refused = (), patch.faults
            raise self._reject(patch.faults)
        checked = check_load(
            self._rows if patch is None else patch.rows,
            # Whole by now, its rows replace the stored ones.
            self._mode if patch is None else Mode.MERGE,
            transaction.targets,
            transaction.stored,
            skip_bad=self._skip_bad,
            excluded=None if patch is None else patch.excluded,
        )
        self._dropped = checked.dropped if patch is None else (*patch.faults, *checked.dropped)
        self._refused = checked.faults
        if checked.faults:
            raise self._reject(checked.faults)
        self.reports = [self.reports[0], StageReport("check", 1, time.monotonic() - begun)]
        effects = _build_effects(checked.changes, self._mode, transaction.base.entries, patch)
        strict = self._mode in (Mode.OVERWRITE, Mode.PATCH)
        return PreparedWrite("Load", effects, strict=strict, reads=transaction.reads)

    def _reject(self, faults: Sequence[Faults]) -> LoadRejected | KeyConflict:
        return build_rejection(faults, self._origins, MAX_REPORTED_VIOLATIONS, self._locate_violations)

    def counts(self) -> dict[str, int]:
        """The input rows of each type that are loaded."""
        return {key: one.rows.num_rows - self._count_dropped(key) for key, one in self._rows.items()}

    def _count_dropped(self, key: str) -> int:
        rows = [faults.rows for faults in self._dropped if faults.target.key == key]
        return len(np.unique(np.concatenate(rows))) if rows else 0

    def close(self) -> None:
        """Nothing is left behind."""


def _name_files(items: Sequence[Item]) -> list[str]:
    """The names of files by number; an empty file has no item and needs no name."""
    known = {item.file_number: item.file for item in items}
    return [known.get(number, "") for number in range(max(known, default=-1) + 1)]


def _build_effects(
    changes: Changes, mode: Mode, entries: Mapping[str, TableEntry], patch: CompletedPatch | None
) -> dict[str, Effect]:
    effects: dict[str, Effect] = {}
    for key, change in changes.items():
        if mode is Mode.OVERWRITE:
            if change.rows.num_rows or entries[key].row_count != 0:
                effects[key] = ReplaceRows(change.rows)
        elif change.rows.num_rows and patch is not None:
            effects[key] = UpsertRows(change.rows, patch.replaced_rows(key, changes))
        elif change.rows.num_rows:
            effects[key] = AppendRows(change.rows) if mode is Mode.APPEND else UpsertRows(change.rows)
    return effects
