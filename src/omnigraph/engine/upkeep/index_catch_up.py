"""When an index lags too much, and how it catches up: at the cost of what it lacks, if that is less than all.

An index may lag: rows it does not know are looked at one by one. One that is missing has all rows outside. It
is due when those are many, or when a rewrite of the table dropped it. A B-tree or a vector index gets one
more segment over the rows outside. Segments that are small beside that one go into it, so that few remain and
each is larger than all smaller ones together. A text index stays one segment: it takes in the new texts and
copies the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.root import Root
from omnigraph.engine.rows.predicate import quoted
from omnigraph.engine.tasks.runner import Runner
from omnigraph.engine.upkeep.declared_indexes import DeclaredIndex, IndexKind
from omnigraph.storage.fragments import Fragment, list_fragments
from omnigraph.storage.index_parts import (
    INVERTED,
    IVF_FLAT,
    BuiltPart,
    IndexPart,
    PackedPart,
    build_part,
    join_parts,
    pack_part,
    remove_parts,
    unpack_part,
)
from omnigraph.storage.indexes import (
    LONGEST,
    IndexCoverage,
    IndexExtension,
    IndexSpec,
    RefusedIndex,
    Segment,
    count_directions,
    find_overlong_vector,
    read_coverage,
)
from omnigraph.storage.location import Location
from omnigraph.storage.search import find_text_index, find_vector_index
from omnigraph.storage.tables import Table

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


SMALL = {IndexKind.SCALAR: 1 << 20, IndexKind.VECTOR: 1 << 16, IndexKind.TEXT: TEXT_ROWS}
"""So many rows are indexed at once in any case, rather than to have one more segment."""


@dataclass(frozen=True, slots=True)
class LaggingIndex:
    """A stored index that does not reach all rows, or is in too many segments."""

    wish: DeclaredIndex
    name: str


@dataclass(frozen=True, slots=True)
class CatchUpPlan:
    """What is to be done about the indexes of a table that lag."""

    extended: tuple[IndexExtension, ...] = ()
    texts: tuple[str, ...] = ()
    """The names of text indexes that take in what is outside of them."""


def find_lagging_indexes(
    asked: Sequence[DeclaredIndex], stored: Mapping[str, IndexCoverage], pieces: Sequence[Fragment]
) -> tuple[LaggingIndex, ...]:
    """The declared indexes with which something is to be done."""
    found = []
    for index in stored.values():
        wish = next((wish for wish in asked if wish.is_met_by(index)), None)
        if wish is not None and _is_due(index, wish.kind, pieces):
            found.append(LaggingIndex(wish, index.name))
    return tuple(found)


def _is_due(index: IndexCoverage, kind: IndexKind, pieces: Sequence[Fragment]) -> bool:
    if not index.is_complete:
        return True
    return index.segments > 1 and (
        kind is IndexKind.TEXT or len(segments_to_join(index, pieces, SMALL[kind])) > 1
    )


def segments_to_join(index: IndexCoverage, pieces: Sequence[Fragment], small: int) -> list[Segment]:
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


def plan_catch_up(table: Table, due: Sequence[LaggingIndex]) -> CatchUpPlan:
    """What that takes for a table as it is stored now."""
    stored, pieces = read_coverage(table), list_fragments(table)
    extended, texts = [], []
    for one in due:
        index = stored.get(one.name)
        texts_of = index if one.wish.kind is IndexKind.TEXT else None
        if texts_of is not None and can_append_texts(table, one.wish, texts_of, pieces):
            texts.append(one.name)
        else:
            extended.append(_extension(table, one, index, pieces))
    return CatchUpPlan(tuple(extended), tuple(texts))


def can_append_texts(
    table: Table, wish: DeclaredIndex, index: IndexCoverage, pieces: Sequence[Fragment]
) -> bool:
    """Whether a text index is best completed: it is one of ours, large, and little is outside."""
    total = sum(one.rows for one in pieces)
    outside = sum(one.rows for one in pieces if one.id not in index.covered)
    return (
        total > SMALL[IndexKind.TEXT]
        and 0 < outside <= total // 3
        and not any(part.inherited for part in index.parts)
        and find_text_index(table, index.columns[0], wish.language) is not None
    )


def _extension(
    table: Table, one: LaggingIndex, index: IndexCoverage | None, pieces: Sequence[Fragment]
) -> IndexExtension:
    chosen = frozenset(piece.id for piece in pieces)
    replaced: Sequence[Segment] = () if index is None else index.parts
    if index is not None and can_extend(table, one.wish, index):
        replaced = segments_to_join(index, pieces, SMALL[one.wish.kind])
        kept = frozenset[int]().union(*(part.fragments for part in index.parts if part not in replaced))
        chosen -= kept
    spec = one.wish.spec(count_vectors(table, one.wish, chosen))
    named = IndexSpec(spec.column, spec.type, one.name, spec.options)
    return IndexExtension(named, chosen, frozenset(part.uuid for part in replaced))


def can_extend(table: Table, wish: DeclaredIndex, index: IndexCoverage) -> bool:
    """Whether a segment of ours fits beside those that are stored."""
    match wish.kind:
        case IndexKind.SCALAR:
            return True
        case IndexKind.TEXT:
            return False
        case IndexKind.VECTOR:
            trusted = find_vector_index(table, wish.column, wish.metric)
            ours = trusted is not None and trusted.kind == IVF_FLAT
            # What Lance makes of an inherited index when a fork is compacted is known of B-trees only.
            return ours and not any(part.inherited for part in index.parts)


def find_refusal(
    table: Table,
    wish: DeclaredIndex,
    fragments: frozenset[int] | None = None,
    *,
    most_bytes: int | None = None,
) -> RefusedIndex | None:
    """Return why an index cannot be built from the values of these fragments; None when it can."""
    if wish.kind is not IndexKind.VECTOR:
        return None
    longest = find_overlong_vector(table, wish.column, fragments, most_bytes=most_bytes)
    if longest is None:
        return None
    reason = f"a vector has the length {longest:.3g}, and an index takes lengths up to {LONGEST:.0e}"
    return RefusedIndex(wish.column, reason)


def count_vectors(table: Table, wish: DeclaredIndex, fragments: frozenset[int] | None = None) -> int:
    """How many values of a column there are to learn from; 0 where that does not matter."""
    if wish.kind is not IndexKind.VECTOR:
        return 0
    if wish.metric == "cosine":
        return count_directions(table, wish.column, fragments)
    chosen = None if fragments is None else sorted(fragments)
    return table.count(f"{quoted(wish.column)} IS NOT NULL", fragments=chosen)


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A version of a table, as a task finds it."""

    uri: str
    branch: str | None
    version: int

    @classmethod
    def of(cls, table: Table) -> TablePlace:
        """Where a table stands."""
        return cls(table.location.uri, table.branch, table.version)

    def table(self) -> Table:
        """Open the table."""
        location = Location(self.uri)
        return Root.at(location).tables.open(location, self.version, branch=self.branch)


def build_parts_with(runner: Runner, table: Table, parts: Sequence[IndexPart]) -> Iterator[BuiltPart]:
    """Build parts of indexes, each by a task, and join those of each index by one more.

    The caller would join them one index after another, while all executors wait.
    """
    place = TablePlace.of(table)
    built: dict[str, list[PackedPart]] = {part.name: [] for part in parts}
    for packed in runner.each("index", parts, partial(_build_part, place)):
        built[packed.values["name"]].append(packed)
    kinds = {part.name: part.type for part in parts}
    # The caller has to write the segment of a text index in any case.
    several = [found for name, found in built.items() if len(found) > 1 and kinds[name] != INVERTED]
    for found in built.values():
        if found not in several:
            yield from map(unpack_part, found)
    joined = [unpack_part(part) for part in runner.each("join index", several, partial(_join_parts, place))]
    yield from joined
    kept = {one.uuid for one in joined}
    parts_of_joined = (unpack_part(part) for found in several for part in found)
    remove_parts(table, [part for part in parts_of_joined if part.uuid not in kept])


def _build_part(place: TablePlace, part: IndexPart) -> PackedPart:
    return pack_part(build_part(place.table(), part))


def _join_parts(place: TablePlace, parts: Sequence[PackedPart]) -> PackedPart:
    return pack_part(join_parts(place.table(), [unpack_part(part) for part in parts]))
