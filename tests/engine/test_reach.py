"""How far declared indexes are extended by themselves: cheaply, and never to two segments of text."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine.upkeep.declared_indexes import DeclaredIndex, IndexKind
from omnigraph.engine.upkeep.index_catch_up import (
    EXTEND_ROWS,
    MOST_ROWS,
    TEXT_ROWS,
    DueIndex,
    find_due_indexes,
    next_segment,
)
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.indexes import IndexCoverage, Segment

ID, TEXT = DeclaredIndex("id", IndexKind.SCALAR), DeclaredIndex("text", IndexKind.TEXT)


def pieces(*rows: int) -> list[Fragment]:
    return [Fragment(number, count, 0) for number, count in enumerate(rows)]


def index(column: str, kind: str, *segments: Sequence[int]) -> dict[str, IndexCoverage]:
    parts = tuple(Segment(f"s{number}", frozenset(ids)) for number, ids in enumerate(segments))
    return {f"{column}_idx": IndexCoverage(f"{column}_idx", (column,), kind, len(parts), 0, 0, parts)}


def due(
    stored: dict[str, IndexCoverage], table: list[Fragment], *wishes: DeclaredIndex, dropped: bool = False
) -> list[DueIndex]:
    return find_due_indexes(wishes or (ID,), stored, table, dropped=dropped)


def build_segment(one: DueIndex, table: list[Fragment], most: int = MOST_ROWS) -> tuple[set[int], set[str]]:
    segment = next_segment(one, table, most=most, whole=one.wish.kind is IndexKind.TEXT)
    return set(segment.fragments), set(segment.replaced)


def test_a_small_table_needs_no_index_unless_a_rewrite_dropped_it() -> None:
    assert due({}, pieces(EXTEND_ROWS - 1)) == []
    assert due({}, pieces(1), dropped=True) == [DueIndex(ID, None, 1)]
    assert due({}, pieces(), dropped=True) == [], "there is nothing to index"


def test_every_declared_index_of_a_large_table_is_due() -> None:
    table = pieces(EXTEND_ROWS, 1)
    assert due({}, table, ID, TEXT) == [
        DueIndex(ID, None, EXTEND_ROWS + 1),
        DueIndex(TEXT, None, EXTEND_ROWS + 1),
    ]
    assert build_segment(due({}, table)[0], table) == ({0, 1}, set())


def test_what_is_indexed_at_one_go_is_bounded() -> None:
    table = pieces(MOST_ROWS, MOST_ROWS, MOST_ROWS)
    (first,) = due({}, table)
    assert (first.outside, build_segment(first, table)) == (3 * MOST_ROWS, ({0}, set()))
    (second,) = due(index("id", "BTree", [0]), table)
    assert (second.outside, build_segment(second, table)) == (2 * MOST_ROWS, ({1}, set()))


def test_an_index_is_extended_by_what_it_lacks_once_that_is_much() -> None:
    stored = index("id", "BTree", [0])
    assert due(stored, pieces(MOST_ROWS, EXTEND_ROWS - 1), dropped=True) == []
    table = pieces(MOST_ROWS, EXTEND_ROWS)
    (one,) = due(stored, table)
    assert (one.outside, build_segment(one, table)) == (EXTEND_ROWS, ({1}, set()))


def test_small_segments_go_into_the_new_one() -> None:
    stored = index("id", "BTree", [0], [1], [2])
    table = pieces(500_000, 20_000, 30_000, EXTEND_ROWS)
    (one,) = due(stored, table)
    assert build_segment(one, table) == ({1, 2, 3}, {"s1", "s2"})


def test_segments_stay_few_however_much_is_added() -> None:
    stored, table = index("id", "BTree", [0]), pieces(2 * EXTEND_ROWS)
    indexed = 0
    for number in range(1, 400):
        table.append(Fragment(number, EXTEND_ROWS, 0))
        (one,) = due(stored, table)
        fragments, replaced = build_segment(one, table)
        indexed += EXTEND_ROWS * len(fragments)
        kept = [part for part in stored["id_idx"].parts if part.uuid not in replaced]
        parts = (*kept, Segment(f"n{number}", frozenset(fragments)))
        stored = {"id_idx": IndexCoverage("id_idx", ("id",), "BTree", len(parts), 0, 0, parts)}
    assert len(stored["id_idx"].parts) <= 20
    assert indexed <= 10 * sum(one.rows for one in table)


def test_a_text_index_is_due_when_a_share_of_the_rows_is_outside_and_stays_whole() -> None:
    stored = index("text", "Inverted", [0])
    assert due(stored, pieces(10_000, 4_000), TEXT) == []
    table = pieces(10_000, 5_000)
    (one,) = due(stored, table, TEXT)
    assert build_segment(one, table) == ({0, 1}, {"s0"})
    assert due(stored, pieces(8 * TEXT_ROWS, TEXT_ROWS), TEXT) == []
    assert len(due(stored, pieces(7 * TEXT_ROWS, TEXT_ROWS), TEXT)) == 1
