"""Breaches of rules about whole loads, in input order and with their places; made as they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from omnigraph.engine.constraints.faults import NO_ROW, rank_ids
from omnigraph.engine.load.checks.breaches import Breaches
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.row_views import split_positions
from omnigraph.engine.load.staging import StagedItem, read_lines
from omnigraph.engine.rows.violations import Numbers, Violation, format_entity


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
        lines = [self._lines(one) for one in breaches]
        group = np.repeat(np.arange(len(breaches)), [len(one.positions) for one in breaches])
        within = np.concatenate([np.arange(len(one.positions)) for one in breaches])
        for at in self._order(breaches, lines, group).tolist():
            one, place = breaches[group[at]], int(within[at])
            yield self._placed(one, place, int(lines[group[at]][place]))

    def _order(self, breaches: Sequence[Breaches], lines: Sequence[Numbers], group: Numbers) -> Numbers:
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

    def _lines(self, one: Breaches) -> Numbers:
        """The lines of rows, counted from the beginning of their items."""
        known = one.positions != NO_ROW
        items, rows = split_positions(one.positions)
        lines = np.zeros(len(rows), np.int64)
        for number in np.unique(items[known]).tolist():
            chosen = np.flatnonzero(known & (items == number))
            staged = next(found for found in self.items[number].types if found.key == one.key)
            lines[chosen] = read_lines(self.job, number, staged, rows[chosen])
        return lines

    def _placed(self, one: Breaches, place: int, line: int) -> LocatedBreach:
        entity, reason = one.ids[place].as_py(), one.reasons[place].as_py()
        name, position = format_entity(one.about or one.key, entity), int(one.positions[place])
        if position == NO_ROW:
            return LocatedBreach(one, entity, Violation(None, None, name, reason))
        staged = self.items[position >> 32]
        item, line = staged.locate(line)
        group, at = item.place(line, self.before[staged.item.number])
        return LocatedBreach(one, entity, Violation(item.file, at, name, reason, group))
