"""How far the declared indexes of a table are to reach, decided from what they cover and what came since.

An index may lag: rows it does not know are looked at one by one. One that is missing has all rows outside. It
is due when those are many, or when a rewrite of the table dropped it, and gets a segment over just them.
Segments that are small beside that one go into it, so that few remain. A text index stays one segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.upkeep.declared_indexes import DeclaredIndex, IndexKind
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.indexes import IndexCoverage, Segment

EXTEND_ROWS = 16_384
"""So many rows outside of an index are worth a segment."""
MOST_ROWS = 1 << 20
"""The rows of one segment: more of them wait for the next round."""
TEXT_ROWS = 1 << 17
"""Up to this size a text index is rebuilt; above, it takes in the rows outside and copies the rest."""
EXTEND_TEXTS = 1_024
"""So many rows outside of a text index are worth completing it, if they are enough of all rows."""
_SMALL_SHARE, _LARGE_SHARE = 3, 8
"""Enough is a third of a small table, and an eighth of a large one, of which the index is only copied."""


@dataclass(frozen=True, slots=True)
class DueIndex:
    """A declared index that is missing, or lags by so much that something is to be done."""

    wish: DeclaredIndex
    stored: IndexCoverage | None
    """None when it is missing."""
    outside: int
    """How many rows it does not know."""


@dataclass(frozen=True, slots=True)
class NextSegment:
    """The next segment of an index that is due."""

    due: DueIndex
    fragments: frozenset[int]
    replaced: frozenset[str]
    """The stored segments that go into it."""
    rows: int
    """How many rows are read for it."""

    @property
    def name(self) -> str:
        """The name under which the index is stored."""
        return self.due.wish.name if self.due.stored is None else self.due.stored.name


def find_due_indexes(
    asked: Sequence[DeclaredIndex],
    stored: Mapping[str, IndexCoverage],
    fragments: Sequence[Fragment],
    *,
    dropped: bool,
) -> list[DueIndex]:
    """The declared indexes that are due; `dropped` says that a rewrite of the table lost those it had."""
    found = []
    for wish in asked:
        index = next((one for one in stored.values() if wish.is_met_by(one)), None)
        covered = frozenset[int]() if index is None else index.covered
        outside = sum(one.rows for one in fragments if one.id not in covered)
        if outside and outside >= _fewest(wish, index, fragments, dropped=dropped):
            found.append(DueIndex(wish, index, outside))
    return found


def _fewest(
    wish: DeclaredIndex, index: IndexCoverage | None, fragments: Sequence[Fragment], *, dropped: bool
) -> int:
    """How many rows must be outside of an index for it to be due."""
    if index is None:
        return 1 if dropped else EXTEND_ROWS
    if wish.kind is not IndexKind.TEXT:
        return EXTEND_ROWS
    total = sum(one.rows for one in fragments)
    return max(EXTEND_TEXTS, -(-total // (_SMALL_SHARE if total <= TEXT_ROWS else _LARGE_SHARE)))


def next_segment(due: DueIndex, fragments: Sequence[Fragment], *, most: int, whole: bool) -> NextSegment:
    """The next segment, of `most` rows where possible; `whole` replaces all that is stored."""
    if whole:
        parts = () if due.stored is None else due.stored.parts
        every = frozenset(one.id for one in fragments)
        return NextSegment(
            due, every, frozenset(one.uuid for one in parts), sum(one.rows for one in fragments)
        )
    covered = frozenset[int]() if due.stored is None else due.stored.covered
    new = _first(most, [one for one in fragments if one.id not in covered])
    chosen, total = {one.id for one in new}, sum(one.rows for one in new)
    replaced = set()
    for rows, part in _smallest_first(due.stored, fragments):
        if rows > 2 * total or total + rows > most:
            break
        chosen |= part.fragments
        total += rows
        replaced.add(part.uuid)
    return NextSegment(due, frozenset(chosen), frozenset(replaced), total)


def _smallest_first(index: IndexCoverage | None, fragments: Sequence[Fragment]) -> list[tuple[int, Segment]]:
    rows = {one.id: one.rows for one in fragments}
    parts = () if index is None else index.parts
    return sorted(((sum(rows[id] for id in part.fragments), part) for part in parts), key=lambda one: one[0])


def _first(most: int, fragments: Sequence[Fragment]) -> list[Fragment]:
    """The first fragments, of no more rows than `most` together, and at least one."""
    chosen: list[Fragment] = []
    total = 0
    for one in fragments:
        if chosen and total + one.rows > most:
            break
        chosen.append(one)
        total += one.rows
    return chosen
