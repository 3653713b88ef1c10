"""The topology of an edge table: codes, sorted neighbours, degrees, and what changes when edges do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW
from omnigraph.query.topology.adjacency import Pairs, arrange_edges
from omnigraph.query.topology.linked_topology import LinkedTopology
from omnigraph.query.topology.topology import Topology, build_topology, extend_topology
from tests.query.naive_walks import DIRECTIONS, Drawn, Edge, directions, draw_walks

Triple = tuple[str, str, int]


def _triples(topology: Topology, direction: EdgeDirection, *, distinct: bool = False) -> list[Triple]:
    """Every (id, neighbour's id, edge position) of an adjacency, in its order."""
    near, far = topology.sources.to_pylist(), topology.targets.to_pylist()
    if direction == "in":
        near, far = far, near
    adjacency = topology.adjacency(direction, distinct=distinct)
    owners = np.repeat(np.arange(len(near)), np.diff(adjacency.indptr))
    places = zip(owners.tolist(), adjacency.neighbours.tolist(), adjacency.edges.tolist(), strict=True)
    return [(near[left], far[right], edge) for left, right, edge in places]


def _expected_edges(edges: list[tuple[str | None, str | None]], direction: EdgeDirection) -> list[Triple]:
    found = []
    for number, (source, target) in enumerate(edges):
        if source is None or target is None:
            continue
        if direction != "in":
            found.append((source, target, number))
        if direction == "in" or (direction == "both" and source != target):
            found.append((target, source, number))
    return sorted(found)


def _texts(graph: Drawn) -> list[tuple[str | None, str | None]]:
    return [(graph.id(source), graph.id(target)) for source, target in graph.edges]


@given(draw_walks())
def test_every_living_edge_is_in_the_adjacency_of_each_direction(graph: Drawn) -> None:
    topology = graph.topology()
    for direction in directions(graph):
        assert sorted(_triples(topology, direction)) == _expected_edges(_texts(graph), direction)


@given(draw_walks())
def test_neighbours_are_sorted_and_parallel_edges_lie_in_the_order_of_their_positions(graph: Drawn) -> None:
    topology = graph.topology()
    for direction in directions(graph):
        adjacency = topology.adjacency(direction)
        for begin, end in zip(adjacency.indptr[:-1], adjacency.indptr[1:], strict=True):
            run = list(
                zip(
                    adjacency.neighbours[begin:end].tolist(), adjacency.edges[begin:end].tolist(), strict=True
                )
            )
            assert run == sorted(run)


@given(draw_walks())
def test_the_distinct_adjacency_has_each_neighbour_once_by_its_first_edge(graph: Drawn) -> None:
    topology = graph.topology()
    for direction in directions(graph):
        first: dict[tuple[str, str], int] = {}
        for near, far, edge in _expected_edges(_texts(graph), direction):
            first.setdefault((near, far), edge)
        found = {(near, far): edge for near, far, edge in _triples(topology, direction, distinct=True)}
        assert found == first
        assert len(topology.adjacency(direction, distinct=True).neighbours) == len(first)


def test_without_parallel_edges_the_distinct_adjacency_takes_no_memory_of_its_own() -> None:
    topology = build_topology(pa.array(["a", "b", "a"]), pa.array(["b", "a", "c"]), True)
    assert topology.adjacency("out", distinct=True) is topology.adjacency("out")
    assert topology.adjacency("both", distinct=True) is not topology.adjacency("both")


@given(draw_walks())
def test_degrees_are_the_same_before_and_after_the_adjacency_is_built(graph: Drawn) -> None:
    for direction in directions(graph):
        topology = graph.topology()
        before = topology.degrees(direction)
        expected = np.diff(topology.adjacency(direction).indptr)
        assert before.tolist() == expected.tolist() == topology.degrees(direction).tolist()
        distinct = np.diff(topology.adjacency(direction, distinct=True).indptr)
        assert topology.degrees(direction, distinct=True).tolist() == distinct.tolist()


# --- codes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ids",
    [
        ["7", "07", "007", "0"],
        ["0x10", "16", "0XF"],
        ["0xFFFFFFFF", "4294967295"],
        ["+5", "5", "-5", "-0"],
        [" 5", "5", "5 "],
        ["", "0"],
        ["9" * 18, "9" * 19, "9" * 40, "1"],
        ["1", "999999999999999999"],
        ["12", "x", "\N{ARABIC-INDIC DIGIT FIVE}"],
        ["10", "100", "1000", "5", "99"],
        ["\N{GRINNING FACE}", "\N{LATIN SMALL LETTER SHARP S}", "ss"],
        ["", "", ""],
        [],
    ],
)
@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_ids_that_differ_as_text_have_codes_of_their_own(ids: list[str], type_: pa.DataType) -> None:
    topology = build_topology(pa.array(ids, type=type_), pa.array(ids[::-1], type=type_), True)
    known = topology.sources.to_pylist()
    assert sorted(known) == sorted(set(ids))
    assert [known[code] for code in topology.src] == ids
    assert [known[code] for code in topology.dst] == ids[::-1]


def test_ids_may_come_in_chunks_and_slices() -> None:
    ids = pa.array(["0", "x", "12", "5", "12", "y"])
    src = pa.chunked_array([ids[2:3], ids[:0], ids[3:5]])
    dst = pa.chunked_array([ids[3:5], ids[2:3]])
    topology = build_topology(src, dst, True)
    known = topology.sources.to_pylist()
    assert [known[code] for code in topology.src] == ["12", "5", "12"]
    assert [known[code] for code in topology.dst] == ["5", "12", "12"]


def test_ends_of_different_types_do_not_share_codes() -> None:
    topology = build_topology(pa.array(["a", "b"]), pa.array(["b", "b"]), False)
    assert not topology.shared
    assert topology.sources.to_pylist() == ["a", "b"]
    assert topology.targets.to_pylist() == ["b"]
    assert len(topology.loops()) == 0


def test_an_edge_without_an_end_or_not_alive_is_dead_at_both_ends() -> None:
    topology = build_topology(
        pa.array(["a", None, "a", "b"]),
        pa.array(["b", "b", None, "a"]),
        True,
        alive=np.array([True, True, True, False]),
    )
    assert (topology.edge_count, topology.dead) == (4, 3)
    assert topology.src.tolist()[1:] == topology.dst.tolist()[1:] == [NO_ROW] * 3
    assert _triples(topology, "both") == [("a", "b", 0), ("b", "a", 0)]


def test_codes_and_positions_too_long_for_one_sort_key_are_sorted_all_the_same() -> None:
    random = np.random.default_rng(5)
    near = random.integers(0, 8, 500).astype(np.int32)
    far = random.choice([0, 1, 2**31 - 1, 2**30], 500).astype(np.int32)
    edges = random.permutation(500) + 2**31
    adjacency = arrange_edges(Pairs(near, far, edges), 8)
    order = np.lexsort((edges, far, near))
    assert adjacency.neighbours.tolist() == far[order].tolist()
    assert adjacency.edges.tolist() == edges[order].tolist()


# --- extension --------------------------------------------------------------------------------------

_numbers = np.random.default_rng(3).integers(0, 25, (1500, 2))
_MANY: tuple[Edge, ...] = tuple((int(source), int(target)) for source, target in _numbers)
_added = st.lists(st.tuples(st.integers(0, 27), st.integers(0, 27)), max_size=11)
_few = st.sets(st.integers(0, len(_MANY) - 1), max_size=11)
_most = st.sets(st.integers(0, len(_MANY) - 1), min_size=40, max_size=300)


@given(_added, _few | _most, st.sets(st.sampled_from(DIRECTIONS)), st.booleans(), st.booleans())
def test_an_extension_equals_the_topology_rebuilt(
    added: list[Edge], removed: set[int], built: set[EdgeDirection], shared: bool, texts: bool
) -> None:
    graph = Drawn(_MANY, shared, (), (), 0, 0, texts)
    topology = graph.topology()
    for direction in built & set(directions(graph)):
        topology.adjacency(direction, distinct=True)
    new = [(graph.id(source), graph.id(target)) for source, target in added]
    grown = extend_topology(
        topology,
        np.array(list(removed), dtype=np.int64),
        pa.array([source for source, _ in new], type=pa.string()),
        pa.array([target for _, target in new], type=pa.string()),
    )
    kept = [(None, None) if number in removed else ends for number, ends in enumerate(_texts(graph))]
    assert grown.dead == len(removed)
    for direction in directions(graph):
        assert sorted(_triples(grown, direction)) == _expected_edges([*kept, *new], direction)
        _require_sorted(grown, direction)


def _require_sorted(topology: Topology, direction: EdgeDirection) -> None:
    adjacency = topology.adjacency(direction)
    owners = np.repeat(np.arange(topology.code_count(direction)), np.diff(adjacency.indptr))
    assert np.lexsort((adjacency.edges, adjacency.neighbours, owners)).tolist() == list(range(len(owners)))


def _ring(size: int) -> Topology:
    ids = [str(number) for number in range(size)]
    return build_topology(pa.array(ids), pa.array(ids[1:] + ids[:1]), True)


def test_a_small_extension_merges_what_was_sorted_and_a_large_one_leaves_it_to_be_sorted() -> None:
    ring = _ring(200)
    ring.adjacency("out", distinct=True)
    small = extend_topology(ring, np.array([3]), pa.array(["5", "new"]), pa.array(["1", "5"]))
    assert set(small.built()) == {("out", False)}
    assert ("new", "5", 201) in _triples(small, "out")
    assert ("3", "4", 3) not in _triples(small, "out")
    assert small.sources.to_pylist()[200:] == ["new"]
    large = extend_topology(ring, np.arange(50), pa.array(["5"]), pa.array(["1"]))
    assert set(large.built()) == set()
    assert len(_triples(large, "out")) == 151


def test_an_extension_leaves_the_topology_it_came_from_as_it_was() -> None:
    ring = _ring(300)
    before = _triples(ring, "out")
    extend_topology(ring, np.array([0, 7]), pa.array(["1"]), pa.array(["1"]))
    assert (_triples(ring, "out"), ring.dead) == (before, 0)


def test_an_edge_that_is_dead_already_can_be_removed_again() -> None:
    ring = _ring(300)
    ring.adjacency("in")
    none = pa.array([], type=pa.string())
    once = extend_topology(ring, np.array([7, 7]), none, none)
    twice = extend_topology(once, np.array([7, 8]), none, none)
    assert (once.dead, twice.dead) == (1, 2)
    assert len(_triples(twice, "in")) == 298


def test_extensions_follow_each_other() -> None:
    topology = _ring(600)
    topology.adjacency("both")
    for step in range(5):
        topology = extend_topology(
            topology, np.array([step * 3]), pa.array([f"n{step}"]), pa.array([f"n{step - 1}"])
        )
    assert (topology.edge_count, topology.dead) == (605, 5)
    assert ("n4", "n3", 604) in _triples(topology, "both")
    assert ("both", False) in topology.built()
    assert ("n3", "n4", 604) in _triples(topology, "both")


# --- positions --------------------------------------------------------------------------------------


def test_positions_and_codes_lead_to_each_other() -> None:
    topology = build_topology(pa.array(["a", "b"]), pa.array(["b", "c"]), True)
    linked = LinkedTopology(topology, np.array([4, NO_ROW, 0]), 6)
    assert linked.source_codes.tolist() == [2, NO_ROW, NO_ROW, NO_ROW, 0, NO_ROW, NO_ROW]


def test_memory_is_counted_and_grows_with_what_is_built() -> None:
    topology = _ring(1000)
    bare = topology.nbytes
    out = topology.adjacency("out", distinct=True)
    assert topology.nbytes == bare + out.nbytes
    linked = LinkedTopology(topology, np.arange(1000), 1000)
    assert linked.nbytes == 1000 * 8
    assert len(linked.source_codes) == 1001
    unused = linked.nbytes
    assert unused == 1000 * 8 + 1001 * 4
    linked.steps("out", distinct=True)
    linked.steps("out", distinct=False)
    assert linked.nbytes - unused == 2 * 1001 * 8, "codes that are positions share their neighbours"
    other = LinkedTopology(topology, np.arange(1000)[::-1].copy(), 1000)
    other.steps("out", distinct=True)
    assert other.nbytes == unused + 2 * 1001 * 8 + 1000 * 4


def test_threads_that_want_the_same_neighbours_get_the_same_arrays() -> None:
    topology = _ring(2000)
    linked = LinkedTopology(topology, np.arange(2000), 2000)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: linked.steps("both", distinct=True), range(32)))
    assert all(each is made[0] for each in made)


@pytest.mark.parametrize("shared", [True, False])
def test_codes_are_positions_where_the_nodes_are_known(shared: bool) -> None:
    nodes = pa.array(["z", "a", "b", "alone"])
    topology = build_topology(
        pa.array(["a", "b", "gone"]), pa.array(["b", "z", "a"]), shared, None, (nodes, nodes)
    )
    assert topology.sources.to_pylist() == ["z", "a", "b", "alone", "gone"]
    assert topology.src.tolist() == [1, 2, 4]
    assert topology.dst.tolist() == [2, 0, 1]
    assert sorted(_triples(topology, "out")) == [("a", "b", 0), ("b", "z", 1), ("gone", "a", 2)]


def test_nodes_get_no_codes_where_few_of_them_have_edges() -> None:
    nodes = pa.array([str(number) for number in range(100)])
    topology = build_topology(pa.array(["7"]), pa.array(["9"]), True, None, (nodes, None))
    assert topology.sources.to_pylist() == ["7", "9"]
