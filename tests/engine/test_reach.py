"""How far indexes are extended by themselves: cheaply, and never to two segments of text."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine.reach import EXTEND_ROWS, ID_INDEX_ROWS, MOST_ROWS, TEXT_ROWS, extensions
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.indexes import Extension, IndexCoverage, Segment


def pieces(*rows: int) -> list[Fragment]:
    return [Fragment(number, count, 0) for number, count in enumerate(rows)]


def index(column: str, kind: str, *segments: Sequence[int]) -> dict[str, IndexCoverage]:
    parts = tuple(Segment(f"s{number}", frozenset(ids)) for number, ids in enumerate(segments))
    return {f"{column}_idx": IndexCoverage(f"{column}_idx", (column,), kind, len(parts), 0, 0, parts)}


def told(found: list[Extension]) -> list[tuple[str, set[int], set[str]]]:
    return [(one.spec.name, set(one.fragments), set(one.replaced)) for one in found]


def test_a_small_table_needs_no_index() -> None:
    assert extensions({}, pieces(ID_INDEX_ROWS - 1)) == []


def test_the_ids_of_a_large_table_are_indexed() -> None:
    assert told(extensions({}, pieces(ID_INDEX_ROWS, 1))) == [("id_idx", {0, 1}, set())]


def test_what_is_indexed_at_one_go_is_bounded() -> None:
    table = pieces(MOST_ROWS, MOST_ROWS, MOST_ROWS)
    assert told(extensions({}, table)) == [("id_idx", {0}, set())]
    assert told(extensions(index("id", "BTree", [0]), table)) == [("id_idx", {1}, set())]


def test_an_index_is_extended_by_what_it_lacks_once_that_is_much() -> None:
    stored = index("id", "BTree", [0])
    assert extensions(stored, pieces(MOST_ROWS, EXTEND_ROWS - 1)) == []
    assert told(extensions(stored, pieces(MOST_ROWS, EXTEND_ROWS))) == [("id_idx", {1}, set())]


def test_small_segments_go_into_the_new_one() -> None:
    stored = index("id", "BTree", [0], [1], [2])
    table = pieces(500_000, 20_000, 30_000, EXTEND_ROWS)
    assert told(extensions(stored, table)) == [("id_idx", {1, 2, 3}, {"s1", "s2"})]


def test_segments_stay_few_however_much_is_added() -> None:
    stored, table = index("id", "BTree", [0]), pieces(ID_INDEX_ROWS)
    indexed = 0
    for number in range(1, 400):
        table.append(Fragment(number, EXTEND_ROWS, 0))
        (one,) = extensions(stored, table)
        indexed += EXTEND_ROWS * len(one.fragments)
        kept = [part for part in stored["id_idx"].parts if part.uuid not in one.replaced]
        parts = (*kept, Segment(f"n{number}", one.fragments))
        stored = {"id_idx": IndexCoverage("id_idx", ("id",), "BTree", len(parts), 0, 0, parts)}
    assert len(stored["id_idx"].parts) <= 20
    assert indexed <= 10 * sum(one.rows for one in table)


def test_a_text_index_is_built_anew_as_a_whole() -> None:
    stored = index("id", "BTree", [0, 1]) | index("text", "Inverted", [0])
    assert extensions(stored, pieces(10_000, 4_000)) == []
    assert told(extensions(stored, pieces(10_000, 5_000))) == [("text_idx", {0, 1}, {"s0"})]
    assert extensions(stored, pieces(TEXT_ROWS, TEXT_ROWS)) == [], "that is left to `optimize`"
