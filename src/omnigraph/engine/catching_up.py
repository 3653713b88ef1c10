"""How `optimize` brings indexes up to date: at the cost of what they lack, where that is less than all.

A B-tree or a vector index gets one more segment over the rows outside. Segments that are small beside that
one go into it, so that few remain and each is larger than all smaller ones together. A text index stays one
segment: it takes in the new texts and copies the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omnigraph.engine.index_intent import Kind, Wish
from omnigraph.engine.reach import TEXT_ROWS
from omnigraph.engine.write.sql import quoted
from omnigraph.storage.fragments import Fragment, fragments
from omnigraph.storage.index_parts import IVF_FLAT
from omnigraph.storage.indexes import Extension, IndexCoverage, IndexSpec, Segment, coverage
from omnigraph.storage.search import stored_text_index, stored_vector_index
from omnigraph.storage.tables import Table

SMALL = {Kind.SCALAR: 1 << 20, Kind.VECTOR: 1 << 16, Kind.TEXT: TEXT_ROWS}
"""So many rows are indexed at once in any case, rather than to have one more segment."""


@dataclass(frozen=True, slots=True)
class Lagging:
    """A stored index that does not reach all rows, or is in too many segments."""

    wish: Wish
    name: str


@dataclass(frozen=True, slots=True)
class CatchingUp:
    """What is to be done about the indexes of a table that lag."""

    extended: tuple[Extension, ...] = ()
    texts: tuple[str, ...] = ()
    """The names of text indexes that take in what is outside of them."""


def lagging(
    asked: Sequence[Wish], stored: Mapping[str, IndexCoverage], pieces: Sequence[Fragment]
) -> tuple[Lagging, ...]:
    """The declared indexes with which something is to be done."""
    found = []
    for index in stored.values():
        wish = next((wish for wish in asked if wish.is_met_by(index)), None)
        if wish is not None and _is_due(index, wish.kind, pieces):
            found.append(Lagging(wish, index.name))
    return tuple(found)


def _is_due(index: IndexCoverage, kind: Kind, pieces: Sequence[Fragment]) -> bool:
    if not index.is_complete:
        return True
    return index.segments > 1 and (kind is Kind.TEXT or len(joined(index, pieces, SMALL[kind])) > 1)


def joined(index: IndexCoverage, pieces: Sequence[Fragment], small: int) -> list[Segment]:
    """The segments that go into the next one, which holds all rows outside, too."""
    rows = {one.id: one.rows for one in pieces}
    total = sum(one.rows for one in pieces if one.id not in index.covered)
    chosen: list[Segment] = []
    sizes = [(sum(rows[one] for one in part.fragments), part) for part in index.parts]
    for size, part in sorted(sizes, key=lambda one: one[0]):
        if total and size > max(2 * total, small):
            break
        chosen.append(part)
        total += size
    return chosen


def catching_up(table: Table, due: Sequence[Lagging]) -> CatchingUp:
    """What that takes for a table as it is stored now."""
    stored, pieces = coverage(table), fragments(table)
    extended, texts = [], []
    for one in due:
        index = stored.get(one.name)
        if index is not None and one.wish.kind is Kind.TEXT and _takes_in(table, index, pieces):
            texts.append(one.name)
        else:
            extended.append(_extension(table, one, index, pieces))
    return CatchingUp(tuple(extended), tuple(texts))


def _takes_in(table: Table, index: IndexCoverage, pieces: Sequence[Fragment]) -> bool:
    """Whether a text index is best completed: it is one of ours, large, and little is outside."""
    total = sum(one.rows for one in pieces)
    outside = sum(one.rows for one in pieces if one.id not in index.covered)
    return (
        total > SMALL[Kind.TEXT]
        and 0 < outside <= total // 3
        and not any(part.inherited for part in index.parts)
        and stored_text_index(table, index.columns[0]) is not None
    )


def _extension(
    table: Table, one: Lagging, index: IndexCoverage | None, pieces: Sequence[Fragment]
) -> Extension:
    chosen = frozenset(piece.id for piece in pieces)
    replaced: Sequence[Segment] = () if index is None else index.parts
    if index is not None and _grows(table, one.wish, index):
        replaced = joined(index, pieces, SMALL[one.wish.kind])
        kept = frozenset[int]().union(*(part.fragments for part in index.parts if part not in replaced))
        chosen -= kept
    spec = one.wish.spec(_vectors(table, one.wish, chosen))
    named = IndexSpec(spec.column, spec.type, one.name, spec.options)
    return Extension(named, chosen, frozenset(part.uuid for part in replaced))


def _grows(table: Table, wish: Wish, index: IndexCoverage) -> bool:
    """Whether a segment of ours fits beside those that are stored."""
    match wish.kind:
        case Kind.SCALAR:
            return True
        case Kind.TEXT:
            return False
        case Kind.VECTOR:
            trusted = stored_vector_index(table, wish.column)
            ours = trusted is not None and trusted.kind == IVF_FLAT
            # What Lance makes of an inherited index when a fork is compacted is known of B-trees only.
            return ours and not any(part.inherited for part in index.parts)


def _vectors(table: Table, wish: Wish, chosen: frozenset[int]) -> int:
    if wish.kind is not Kind.VECTOR:
        return 0
    return table.count(f"{quoted(wish.column)} IS NOT NULL", fragments=sorted(chosen))
