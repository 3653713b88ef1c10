"""A load whose rows fit into memory: nothing is written before all of it is checked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from omnigraph.engine.load.request import StageReport, kinds_of
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.read import read_item
from omnigraph.engine.manifest import Entry
from omnigraph.engine.plan import Append, Effect, Replace, Upsert
from omnigraph.engine.write.change import Changes
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.faults import Faults, rejection, violations_of
from omnigraph.engine.write.read import LoadReader, SplitRows, gathered
from omnigraph.engine.write.rejects import VIOLATIONS_TOLD
from omnigraph.engine.write.sets import check_load
from omnigraph.engine.write.transaction import Prepared, Transaction
from omnigraph.engine.write.violations import Origins, Violation
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
        told: int | None,
    ) -> None:
        self._items = {item.file: item for item in items}
        self._mode = mode
        self._skip_bad = skip_bad
        self._told = told
        self._violations: list[Violation] = []
        self._counts: Counter[str] = Counter()
        self._dropped: tuple[Faults, ...] = ()
        self._refused: tuple[Faults, ...] = ()
        begun = time.monotonic()
        parts = list(self._parts(reader, items))
        self._rows = gathered(parts, reader.targets, _files(items))
        read = sum(one.rows.num_rows for one in self._rows.values())
        size = sum(item.size for item in items)
        self.reports = [StageReport("read", len(items), time.monotonic() - begun, read, size)]

    def _parts(self, reader: LoadReader, items: Sequence[Item]) -> Iterator[SplitRows]:
        reading = begin_stage("read", tasks=len(items), size=sum(item.size for item in items))
        for item in items:
            for part in read_item(item, reader):
                self._add(part.violations)
                reading.advance(rows=part.lines)
                yield part.without_violations()
            reading.advance(tasks=1, size=item.size)
        reading.end()

    def _add(self, found: Sequence[Violation]) -> None:
        room = None if self._told is None else max(0, self._told - len(self._violations))
        self._violations += found[:room]
        self._counts.update(kinds_of(found))

    @property
    def wrong(self) -> Counter[str]:
        """How many violations single rows have, by kind."""
        return self._counts

    def unread(self) -> Iterator[Violation]:
        """What is wrong with single rows, in input order, as far as it is told."""
        return iter(self._violations)

    @property
    def left_out(self) -> Counter[str]:
        """How many violations the rules about several rows have, by kind."""
        counts: Counter[str] = Counter()
        for faults in self._dropped:
            counts[faults.rule] += len(faults)
        return counts

    def skipped(self) -> Iterator[Violation]:
        """What is wrong with rows that were left out by those rules, in input order."""
        return self._placed(violations_of(self._dropped, self._origins))

    def refused(self) -> Iterator[Violation]:
        """Why the load cannot be by those rules, when it was refused by one, in input order."""
        return self._placed(violations_of(self._refused, self._origins))

    def _placed(self, found: Iterable[Violation]) -> Iterator[Violation]:
        for one in found:
            item = None if one.file is None else self._items[one.file]
            yield one if item is None else item.placed([one])[0]

    @property
    def _origins(self) -> dict[str, Origins]:
        return {key: rows.origins for key, rows in self._rows.items()}

    def prepared(self, transaction: Transaction) -> Prepared:
        """The effects of the load on a branch as it is, or why it must not be."""
        begun = time.monotonic()
        checked = check_load(
            self._rows, self._mode, transaction.targets, transaction.stored, skip_bad=self._skip_bad
        )
        self._dropped, self._refused = checked.dropped, checked.faults
        if checked.faults:
            raise rejection(checked.faults, self._origins, VIOLATIONS_TOLD, self._placed)
        self.reports = [self.reports[0], StageReport("check", 1, time.monotonic() - begun)]
        effects = _effects(checked.changes, self._mode, transaction.base.entries)
        return Prepared("Load", effects, strict=self._mode is Mode.OVERWRITE)

    def counts(self) -> dict[str, int]:
        """The input rows of each type that are loaded."""
        return {key: one.rows.num_rows - self._missing(key) for key, one in self._rows.items()}

    def _missing(self, key: str) -> int:
        rows = [faults.rows for faults in self._dropped if faults.target.key == key]
        return len(np.unique(np.concatenate(rows))) if rows else 0

    def close(self) -> None:
        """Nothing is left behind."""


def _files(items: Sequence[Item]) -> list[str]:
    """The names of files by number; an empty file has no item, and nobody asks for its name."""
    known = {item.file_number: item.file for item in items}
    return [known.get(number, "") for number in range(max(known, default=-1) + 1)]


def _effects(changes: Changes, mode: Mode, entries: Mapping[str, Entry]) -> dict[str, Effect]:
    effects: dict[str, Effect] = {}
    for key, change in changes.items():
        if mode is Mode.OVERWRITE:
            if change.rows.num_rows or entries[key].row_count != 0:
                effects[key] = Replace(change.rows)
        elif change.rows.num_rows:
            effects[key] = Append(change.rows) if mode is Mode.APPEND else Upsert(change.rows)
    return effects
