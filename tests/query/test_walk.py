"""Hops, walks, tests and sums over a topology, against dictionaries and loops."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import QueryError
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.topology import walk
from omnigraph.query.topology.linked_topology import LinkedTopology
from omnigraph.query.topology.topology import build_topology
from tests.query.naive_walks import DIRECTIONS, Drawn, directions, draw_walks, far_count, near_count

_chunks = st.sampled_from([1, 3, 1 << 20])
_bounds = st.tuples(st.integers(1, 4), st.integers(0, 4)).map(lambda drawn: (drawn[0], sum(drawn)))


@st.composite
def _draw_walks(draw: st.DrawFn, shared: bool | None = None) -> tuple[Drawn, EdgeDirection, Positions]:
    """A graph, a direction, and sources with repetitions and rows without a match."""
    graph = draw(draw_walks(shared))
    direction = draw(st.sampled_from(directions(graph)))
    sources = draw(st.lists(st.integers(NO_ROW, near_count(graph, direction) - 1), max_size=12))
    return graph, direction, np.array(sources, dtype=np.int64)


def _by_row(sources: Positions, row_index: Positions, *found: Positions) -> list[list[tuple[int, ...]]]:
    """What each row became, sorted."""
    rows: list[list[tuple[int, ...]]] = [[] for _ in sources]
    for row, *values in zip(row_index.tolist(), *(each.tolist() for each in found), strict=True):
        rows[row].append(tuple(values))
    return [sorted(row) for row in rows]


def _ones(values: list[int]) -> list[tuple[int, ...]]:
    return [(value,) for value in values]


# --- one hop ----------------------------------------------------------------------------------------


@given(_draw_walks())
def test_a_hop_gives_each_row_each_neighbour_once(given_: tuple[Drawn, EdgeDirection, Positions]) -> None:
    graph, direction, sources = given_
    linked = graph.linked()
    row_index, targets = walk.hop(linked, sources, direction)
    expected = [_ones(graph.hop(source, direction)) for source in sources.tolist()]
    assert _by_row(sources, row_index, targets) == expected
    assert walk.count_hop_rows(linked, sources, direction).tolist() == [len(row) for row in expected]
    assert row_index.tolist() == sorted(row_index.tolist())


@given(_draw_walks())
def test_a_hop_over_edges_gives_a_row_for_each_stored_edge(
    given_: tuple[Drawn, EdgeDirection, Positions],
) -> None:
    graph, direction, sources = given_
    linked = graph.linked()
    row_index, targets, edges = walk.hop_edges(linked, sources, direction)
    expected = [graph.hop_edges(source, direction) for source in sources.tolist()]
    assert _by_row(sources, row_index, targets, edges) == expected
    many = walk.hop(linked, sources, direction, distinct=False)
    assert _by_row(sources, *many) == [[(target,) for target, _ in row] for row in expected]


@given(_draw_walks(), st.data())
def test_edges_between_two_known_ends_are_those_a_hop_would_find(
    given_: tuple[Drawn, EdgeDirection, Positions], data: st.DataObject
) -> None:
    graph, direction, sources = given_
    targets = _drawn_targets(graph, direction, len(sources), data)
    linked = graph.linked()
    row_index, edges = walk.edges_between(linked, sources, targets, direction)
    pairs = list(zip(sources.tolist(), targets.tolist(), strict=True))
    expected = [[(e,) for far, e in graph.hop_edges(near, direction) if far == to] for near, to in pairs]
    assert _by_row(sources, row_index, edges) == [sorted(row) for row in expected]
    met = walk.are_connected(linked, sources, targets, direction)
    assert met.tolist() == [bool(row) for row in expected]


def _drawn_targets(graph: Drawn, direction: EdgeDirection, count: int, data: st.DataObject) -> Positions:
    places = st.integers(NO_ROW, far_count(graph, direction) - 1)
    return np.array(data.draw(st.lists(places, min_size=count, max_size=count)), dtype=np.int64)


# --- several hops -----------------------------------------------------------------------------------


@given(_draw_walks(), _bounds, _chunks)
def test_a_walk_reaches_what_breadth_first_search_does(
    given_: tuple[Drawn, EdgeDirection, Positions], bounds: tuple[int, int], chunk: int
) -> None:
    graph, direction, sources = given_
    row_index, targets = walk.find_reached(graph.linked(), sources, direction, *bounds, chunk=chunk)
    expected = [_ones(graph.reach(source, direction, *bounds)) for source in sources.tolist()]
    assert _by_row(sources, row_index, targets) == expected


@given(_draw_walks(), _bounds, _chunks)
def test_all_targets_of_a_row_come_in_one_part(
    given_: tuple[Drawn, EdgeDirection, Positions], bounds: tuple[int, int], chunk: int
) -> None:
    graph, direction, sources = given_
    seen: set[int] = set()
    for row_index, _ in walk.reach_parts(graph.linked(), sources, direction, *bounds, chunk=chunk):
        assert seen.isdisjoint(row_index.tolist())
        seen |= set(row_index.tolist())


@given(_draw_walks(), _bounds, _chunks)
def test_what_a_set_reaches_is_the_union_of_what_its_members_reach(
    given_: tuple[Drawn, EdgeDirection, Positions], bounds: tuple[int, int], chunk: int
) -> None:
    graph, direction, sources = given_
    reached = walk.reach_distinct(graph.linked(), sources, direction, *bounds, chunk=chunk)
    expected: set[int] = set()
    for source in sources.tolist():
        expected |= set(graph.reach(source, direction, *bounds))
    assert reached.tolist() == sorted(expected)


@given(_draw_walks(), _bounds, _chunks, st.data())
def test_a_path_between_two_known_ends_is_one_a_walk_would_find(
    given_: tuple[Drawn, EdgeDirection, Positions],
    bounds: tuple[int, int],
    chunk: int,
    data: st.DataObject,
) -> None:
    graph, direction, sources = given_
    targets = _drawn_targets(graph, direction, len(sources), data)
    met = walk.are_connected(graph.linked(), sources, targets, direction, *bounds, chunk=chunk)
    pairs = zip(sources.tolist(), targets.tolist(), strict=True)
    assert met.tolist() == [to in graph.reach(source, direction, *bounds) for source, to in pairs]


def test_a_source_that_only_reaches_itself_by_a_cycle_is_not_reached() -> None:
    linked = _plain([(0, 1), (1, 0), (2, 3)])
    assert walk.reach_distinct(linked, np.array([0]), "out", 1, 5).tolist() == [1]
    assert walk.reach_distinct(linked, np.array([0, 1]), "out", 1, 5).tolist() == [0, 1]
    assert walk.reach_distinct(linked, np.array([0, 2]), "out", 1, 5).tolist() == [1, 3]


def test_a_source_is_reached_by_another_one_only_within_the_bounds() -> None:
    linked = _plain([(0, 1), (1, 2), (2, 3), (3, 2)])
    assert walk.reach_distinct(linked, np.array([0, 3]), "out", 1, 2).tolist() == [1, 2]
    assert walk.reach_distinct(linked, np.array([0, 3]), "out", 1, 3).tolist() == [1, 2, 3]


def test_a_self_loop_reaches_its_node_one_hop_after_it_was_met() -> None:
    linked = _plain([(0, 1), (1, 1), (0, 0)])
    start = np.array([0])
    assert walk.find_reached(linked, start, "out", 1, 1)[1].tolist() == [0, 1]
    assert walk.find_reached(linked, start, "out", 2, 2)[1].tolist() == [1]
    assert walk.find_reached(linked, start, "out", 3, 3)[1].tolist() == []


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("bounds", [(1, 2), (2, 3), (1, 6)])
@pytest.mark.parametrize("count", [200_000, 3_000_000])
def test_many_sources_in_a_large_table_of_nodes_reach_the_same_as_in_a_small_one(
    direction: EdgeDirection, bounds: tuple[int, int], count: int
) -> None:
    random = np.random.default_rng(11)
    nodes = 150
    edges = [(int(a), int(b)) for a, b in random.integers(0, nodes, (400, 2))]
    places = np.sort(random.choice(count, nodes, replace=False))
    small, large = _plain(edges), _plain(edges, places, count)
    sources = random.integers(0, nodes, 300)
    for chunk in (50, 1 << 20):
        rows, targets = walk.find_reached(large, places[sources], direction, *bounds, chunk=chunk)
        expected = _by_row(sources, *walk.find_reached(small, sources, direction, *bounds))
        assert _by_row(sources, rows, np.searchsorted(places, targets)) == expected
        assert np.isin(targets, places).all()


def _plain(
    edges: list[tuple[int, int]], places: Positions | None = None, count: int | None = None
) -> LinkedTopology:
    """Edges between nodes whose ids are their numbers, at the positions given."""
    topology = build_topology(
        pa.array([str(s) for s, _ in edges]), pa.array([str(t) for _, t in edges]), True
    )
    numbers = np.array([int(each) for each in topology.sources.to_pylist()], dtype=np.int64)
    if places is None:
        return LinkedTopology(topology, numbers, max(max(edge) for edge in edges) + 1)
    return LinkedTopology(topology, places[numbers], len(places) if count is None else count)


# --- sums -------------------------------------------------------------------------------------------


@given(_draw_walks(), st.booleans(), st.data())
def test_weights_are_sums_over_the_neighbours_of_each_position(
    given_: tuple[Drawn, EdgeDirection, Positions], distinct: bool, data: st.DataObject
) -> None:
    graph, direction, _ = given_
    linked, far = graph.linked(), far_count(graph, direction)
    values = data.draw(st.lists(st.integers(-(2**40), 2**40), min_size=far, max_size=far))
    neighbours = [
        graph.hop(near, direction) if distinct else [to for to, _ in graph.hop_edges(near, direction)]
        for near in range(near_count(graph, direction))
    ]
    expected = [sum(values[to] for to in row) for row in neighbours]
    whole = walk.sum_neighbours(linked, np.array(values, dtype=np.int64), direction, distinct=distinct)
    assert (whole.tolist(), whole.dtype) == (expected, np.dtype(np.int64))
    parts = walk.sum_neighbours(linked, np.array(values, dtype=np.float64), direction, distinct=distinct)
    assert (parts.tolist(), parts.dtype) == (expected, np.dtype(np.float64))
    counts = walk.sum_neighbours(linked, None, direction, distinct=distinct)
    assert (counts.tolist(), counts.dtype) == ([len(row) for row in neighbours], np.dtype(np.int64))


def test_two_hops_of_weights_count_paths_without_writing_them_out() -> None:
    linked = _plain([(0, 1), (0, 2), (1, 3), (2, 3), (3, 0), (2, 2)])
    ends = walk.sum_neighbours(linked, None, "out")
    rows, targets = walk.hop(linked, np.arange(4), "out")
    paths = len(walk.hop(linked, targets, "out")[0])
    assert int(walk.sum_neighbours(linked, ends, "out").sum()) == paths
    assert len(rows) == 6


def test_infinite_and_missing_floats_stay_with_their_own_sources() -> None:
    linked = _plain([(0, 1), (2, 3), (3, 0)])
    values = np.array([1.5, np.inf, 0.0, np.nan])
    sums = walk.sum_neighbours(linked, values, "out")
    np.testing.assert_array_equal(sums, [np.inf, 0.0, np.nan, 1.5])


def test_a_sum_beyond_64_bits_is_refused_and_one_just_inside_is_exact() -> None:
    linked = _plain([(0, 1), (0, 2), (3, 1)])
    half = 2**62
    with pytest.raises(QueryError, match="does not fit 64 bits"):
        walk.sum_neighbours(linked, np.array([0, half, half, 0]), "out")
    less = half - 2**50
    assert walk.sum_neighbours(linked, np.array([0, less, less - 1, 0]), "out").tolist() == [
        2 * less - 1,
        0,
        0,
        less,
    ]


def test_a_value_at_an_unreachable_node_does_not_matter() -> None:
    linked = _plain([(0, 1), (0, 2)])
    assert walk.sum_neighbours(linked, np.array([2**63 - 1, 3, 4]), "out").tolist() == [7, 0, 0]


# --- degenerate tables ------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False])
def test_a_table_without_edges_leads_nowhere(shared: bool) -> None:
    empty = pa.array([], type=pa.string())
    none = np.empty(0, dtype=np.int64)
    topology = build_topology(empty, empty, shared)
    linked = LinkedTopology(topology, none, 3) if shared else LinkedTopology(topology, none, 3, none, 2)
    sources, targets = np.array([0, NO_ROW, 2]), np.array([0, 1, 1])
    assert [len(each) for each in walk.hop(linked, sources, "out")] == [0, 0]
    assert [len(each) for each in walk.find_reached(linked, sources, "out", 1, 3)] == [0, 0]
    assert walk.reach_distinct(linked, sources, "out", 1, 3).tolist() == []
    assert walk.are_connected(linked, sources, targets, "out").tolist() == [False] * 3
    assert [len(each) for each in walk.edges_between(linked, sources, targets, "out")] == [0, 0]
    assert walk.sum_neighbours(linked, np.ones(3 if shared else 2, dtype=np.int64), "out").tolist() == [
        0,
        0,
        0,
    ]


def test_no_rows_in_no_rows_out() -> None:
    linked, none = _plain([(0, 1)]), np.empty(0, dtype=np.int64)
    assert [len(each) for each in walk.hop_edges(linked, none, "both")] == [0, 0, 0]
    assert [len(each) for each in walk.find_reached(linked, none, "both", 1, 3)] == [0, 0]
    assert len(walk.are_connected(linked, none, none, "both", 1, 3)) == 0
