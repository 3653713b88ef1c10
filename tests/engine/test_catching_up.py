"""`optimize` brings the indexes of a large table up to date at the cost of what they lack."""

from __future__ import annotations

import pytest

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.upkeep import declared_indexes as index_intent
from omnigraph.engine.upkeep.declared_indexes import VECTOR_ROWS, DeclaredIndex, IndexKind
from omnigraph.engine.upkeep.index_catch_up import SMALL, find_lagging_indexes, segments_to_join
from omnigraph.engine.write.transaction import Author
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.index_parts import INVERTED
from omnigraph.storage.indexes import IndexCoverage, IndexSpec, Segment
from omnigraph.storage.location import Location
from omnigraph.storage.search import ANALYSER
from tests.engine.crash.world import change, look, require_settled, rows_of
from tests.engine.upkeep_graph import DOC, add_docs, docs_graph, indexes_of, plan_of, table_of, texts_with

MAIN = Author("main", "ada")
ID = DeclaredIndex("id", IndexKind.SCALAR)
MANY = 10_000_000


def pieces(*rows: int) -> list[Fragment]:
    return [Fragment(number, count, 0) for number, count in enumerate(rows)]


def index(total: int, *segments: set[int]) -> IndexCoverage:
    parts = tuple(Segment(str(number), frozenset(some)) for number, some in enumerate(segments))
    covered = len(frozenset[int]().union(*segments))
    return IndexCoverage("id_idx", ("id",), "BTree", len(parts), covered, total, parts)


def names(stored: IndexCoverage, table: list[Fragment]) -> list[str]:
    return [part.uuid for part in segments_to_join(stored, table, SMALL[IndexKind.SCALAR])]


def test_a_large_segment_stays_and_small_ones_go_into_the_next() -> None:
    table = pieces(MANY, 2_000_000, 30_000, 10)
    assert names(index(4, {0}, {1}, {2}), table) == ["2"]
    assert names(index(4, {0}, {1, 2}), table) == []


def test_a_table_of_up_to_a_million_rows_has_one_segment() -> None:
    assert names(index(3, {0}, {1}), pieces(1_000_000, 10, 1)) == ["1", "0"]


def test_pieces_of_one_size_are_joined_and_those_of_very_different_ones_are_left() -> None:
    alike, different = pieces(MANY, MANY, MANY), pieces(MANY, 2_000_000)
    assert [one.name for one in find_lagging_indexes([ID], {"id_idx": index(3, {0}, {1}, {2})}, alike)] == [
        "id_idx"
    ]
    assert find_lagging_indexes([ID], {"id_idx": index(2, {0}, {1})}, different) == ()
    assert find_lagging_indexes([ID], {"id_idx": index(2, {0, 1})}, different) == ()


def test_segments_stay_few_however_often_a_table_grows() -> None:
    table, segments, built = [Fragment(0, MANY, 0)], [{0}], 0
    for number in range(1, 200):
        table.append(Fragment(number, 50_000, 0))
        gone = {int(name) for name in names(index(len(table), *segments), table)}
        new = {number}.union(*(segments[one] for one in gone))
        segments = [*(some for one, some in enumerate(segments) if one not in gone), new]
        built += 50_000 * len(new)
        assert len(segments) <= 5
    assert built < 12 * 200 * 50_000, "a row is indexed a few times and not once for every row after it"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes a table large is set to what a test can write."""
    for kind in IndexKind:
        monkeypatch.setitem(SMALL, kind, 10)


@pytest.mark.usefixtures("large")
def test_what_is_stored_stays_and_answers_are_right(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(VECTOR_ROWS), vectors=True)
    ensure_indices(graph, MAIN)
    before = {name: {part.uuid for part in one.parts} for name, one in indexes_of(graph, DOC).items()}
    change(graph, 'update Doc set { text: "swimming", score: 9000 } where slug = "d3"')
    add_docs(graph, range(VECTOR_ROWS, VECTOR_ROWS + 40), vectors=True)
    rows = rows_of(look(graph))
    (docs,) = (one for one in optimize(graph, MAIN).tables if one.key == DOC)
    assert sorted(docs.indexes) == ["id", "level", "place", "score", "text"]
    stored = indexes_of(graph, DOC)
    assert all(one.is_complete for one in stored.values())
    kept = {name: before[name] & {part.uuid for part in one.parts} for name, one in stored.items()}
    assert {name: (len(kept[name]), one.segments) for name, one in stored.items()} == {
        "id_idx": (1, 2),
        "level_idx": (1, 2),
        "score_idx": (1, 2),
        "place_idx": (1, 2),
        "text_idx": (0, 1),
    }
    table = table_of(graph, DOC)
    assert texts_with(table, "swim") == {"d3"}
    assert texts_with(table, "walk") == {f"d{number}" for number in range(VECTOR_ROWS + 40)} - {"d3"}
    assert "ScalarIndexQuery" in plan_of(table, "score = 3")
    assert [table.count(where) for where in ("score = 3", "score = 9000", "score > 4999")] == [0, 1, 41]
    assert rows_of(look(graph)) == rows
    assert optimize(graph, MAIN).commit is None, "all is in order"
    require_settled(graph)


class Gone(BaseException):
    """A process that ends."""


def ends_before_texts(op: str, _: str, /) -> None:
    if op == "catch_up":
        raise Gone


@pytest.mark.usefixtures("large")
def test_a_process_that_ends_between_two_indexes_leaves_a_valid_graph(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(30))
    ensure_indices(graph, MAIN)
    change(graph, 'update Doc set { text: "swimming" } where slug = "d3"')
    rows = rows_of(look(graph))
    with pytest.raises(Gone):
        optimize(OpenGraph.open(Root.at(folder, ends_before_texts)), MAIN)
    later = OpenGraph.open(Root.at(folder))
    assert rows_of(look(later)) == rows
    change(later, 'insert Doc { slug: "new", text: "swims" }')
    optimize(later, MAIN)
    assert all(one.is_complete for one in indexes_of(later, DOC).values() if one.name != "place_idx")
    assert texts_with(table_of(later, DOC), "swim") == {"d3", "new"}
    assert len(texts_with(table_of(later, DOC), "walk")) == 29
    require_settled(later)


@pytest.mark.usefixtures("large")
def test_rows_without_vectors_do_not_hold_up_a_vector_index(folder: Location) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(VECTOR_ROWS), vectors=True)
    ensure_indices(graph, MAIN)
    add_docs(graph, range(VECTOR_ROWS, VECTOR_ROWS + 20))
    optimize(graph, MAIN)
    assert indexes_of(graph, DOC)["place_idx"].is_complete
    assert optimize(graph, MAIN).commit is None


@pytest.mark.usefixtures("large")
def test_a_text_index_of_another_analyser_is_rebuilt(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = docs_graph(folder)
    add_docs(graph, range(30))
    with monkeypatch.context() as patched:
        patched.setattr(index_intent, "text_index_spec", unstemmed_index)
        ensure_indices(graph, MAIN)
    add_docs(graph, range(30, 35))
    assert texts_with(table_of(graph, DOC), "walk") == set()
    optimize(graph, MAIN)
    assert texts_with(table_of(graph, DOC), "walk") == {f"d{number}" for number in range(35)}


def unstemmed_index(column: str, name: str, _: str) -> IndexSpec:
    return IndexSpec(column, INVERTED, name, {**ANALYSER, "stem": False})
