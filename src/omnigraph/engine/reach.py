"""How far the indexes of a table are to reach, decided from what they cover and what came since.

An index may lag: rows it does not know are looked at one by one. It is extended when those are many, by a
segment over just them. Segments that are small beside it go into the new one, so that few remain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omnigraph.engine.columns import ID
from omnigraph.engine.index_intent import Kind, Wish
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.index_parts import BTREE, INVERTED
from omnigraph.storage.indexes import Extension, IndexCoverage, IndexSpec, Segment, text_index

ID_INDEX_ROWS = 32_768
"""From here on looking for an id without an index is felt in every write."""
EXTEND_ROWS = 16_384
"""So many rows outside of an index are worth a segment."""
MOST_ROWS = 1 << 20
"""What is indexed at one go: a write must not wait for more."""
TEXT_ROWS = 1 << 17
"""A text index is only ever built as a whole; above this size that is left to whoever asks for it."""


def extensions(stored: Mapping[str, IndexCoverage], fragments: Sequence[Fragment]) -> list[Extension]:
    """What is worth being done now."""
    wanted = [_extended(index, fragments) for index in stored.values()]
    identifier = Wish(ID, Kind.SCALAR)
    if not any(identifier.is_met_by(index) for index in stored.values()):
        wanted.append(_first(identifier.spec(), fragments))
    return [one for one in wanted if one is not None]


def _first(spec: IndexSpec, fragments: Sequence[Fragment]) -> Extension | None:
    if sum(one.rows for one in fragments) < ID_INDEX_ROWS:
        return None
    return Extension(spec, frozenset(one.id for one in _at_one_go(fragments)))


def _extended(index: IndexCoverage, fragments: Sequence[Fragment]) -> Extension | None:
    outside = [one for one in fragments if one.id not in index.covered]
    if index.kind == BTREE and len(index.columns) == 1:
        return _grown(index, outside, fragments)
    if index.kind == INVERTED and len(index.columns) == 1:
        return _rebuilt(index, outside, fragments)
    return None


def _grown(
    index: IndexCoverage, outside: Sequence[Fragment], fragments: Sequence[Fragment]
) -> Extension | None:
    if sum(one.rows for one in outside) < EXTEND_ROWS:
        return None
    new = _at_one_go(outside)
    chosen, total = {one.id for one in new}, sum(one.rows for one in new)
    rows = {one.id: one.rows for one in fragments}
    replaced = set()
    for rows_of, part in sorted(((_rows(part, rows), part) for part in index.parts), key=lambda one: one[0]):
        if rows_of > 2 * total or total + rows_of > MOST_ROWS:
            break
        chosen |= part.fragments
        total += rows_of
        replaced.add(part.uuid)
    spec = IndexSpec(index.columns[0], BTREE, index.name)
    return Extension(spec, frozenset(chosen), frozenset(replaced))


def _rebuilt(
    index: IndexCoverage, outside: Sequence[Fragment], fragments: Sequence[Fragment]
) -> Extension | None:
    """A text index over everything, once the rows outside are half as many as those inside."""
    total, left = (sum(one.rows for one in some) for some in (fragments, outside))
    if total > TEXT_ROWS or left < max(1_024, (total - left) // 2):
        return None
    spec = text_index(index.columns[0], index.name)
    every = frozenset(one.id for one in fragments)
    return Extension(spec, every, frozenset(part.uuid for part in index.parts))


def _rows(part: Segment, rows: Mapping[int, int]) -> int:
    return sum(rows[one] for one in part.fragments)


def _at_one_go(fragments: Sequence[Fragment]) -> list[Fragment]:
    chosen: list[Fragment] = []
    total = 0
    for one in fragments:
        if chosen and total + one.rows > MOST_ROWS:
            break
        chosen.append(one)
        total += one.rows
    return chosen
