"""Every algorithm finds what igraph finds, and the same to the last bit however edges are cut."""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import igraph
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import BadRequest, InvalidValue
from omnigraph.query.algorithms import local_graph
from omnigraph.query.algorithms.algorithms import (
    Algorithm,
    ConnectedComponents,
    Degree,
    LabelPropagation,
    PageRank,
    ShortestPaths,
    TriangleCount,
    names_of,
)
from omnigraph.query.algorithms.edge_block import (
    Block,
    Edges,
    Part,
    WalkDirection,
    build_block,
    find_corners,
    list_corners,
    orient_edges,
)
from omnigraph.query.algorithms.local_graph import LocalEdges, Numbering, concat_ids, sort_ids, weights_of
from tests.examples import EXAMPLES

FEWER = EXAMPLES * 2 // 5


@dataclass(frozen=True)
class Drawn:
    """A graph as lists."""

    count: int
    edges: list[tuple[int, int]]
    weights: list[float] = field(default_factory=list)

    @property
    def igraph(self) -> igraph.Graph:
        return igraph.Graph(self.count, self.edges, directed=True)

    @property
    def nodes(self) -> Numbering:
        return Numbering({"Node": pa.array([f"{number:03}" for number in range(self.count)], pa.string())})

    def ends(self, algorithm: Algorithm) -> tuple[Any, Any, Any]:
        pairs = np.array(self.edges, dtype=np.int64).reshape(-1, 2)
        weights = np.array(self.weights) if algorithm.arrangement.weight else None
        return orient_edges(pairs[:, 0], pairs[:, 1], weights, algorithm.arrangement.way)


@dataclass(frozen=True)
class CutEdges:
    """Edges in several blocks, as tasks elsewhere have them."""

    count: int
    blocks: list[Block]
    corners: int = 1

    def parts(self, stage: str, task: Callable[[Block], Part]) -> Iterator[Part]:
        return map(task, self.blocks)


@st.composite
def graphs(draw: st.DrawFn) -> Drawn:
    count = draw(st.integers(1, 24))
    node = st.integers(0, count - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=70))
    weights = draw(
        st.lists(st.integers(0, 9).map(lambda tenths: tenths / 10), min_size=len(edges), max_size=len(edges))
    )
    return Drawn(count, edges, weights)


def whole(graph: Drawn, algorithm: Algorithm) -> Edges:
    arrive, leave, weights = graph.ends(algorithm)
    distinct = algorithm.arrangement.distinct
    return LocalEdges(
        graph.count, build_block(arrive, leave, graph.count, weights, distinct=distinct, stays=True)
    )


def cut_graph(graph: Drawn, algorithm: Algorithm, pieces: int) -> Edges:
    arrive, leave, weights = graph.ends(algorithm)
    distinct = algorithm.arrangement.distinct

    def block(chosen: Any, corner: int = 0) -> Block:
        some = None if weights is None else weights[chosen]
        return build_block(arrive[chosen], leave[chosen], graph.count, some, distinct=distinct, corner=corner)

    if not algorithm.arrangement.corners:
        return CutEdges(graph.count, [block(arrive % pieces == piece) for piece in range(pieces)])
    places = list(find_corners(arrive, leave, pieces))
    return CutEdges(
        graph.count,
        [
            block(np.concatenate([np.flatnonzero(at == corner) for at in places]), corner)
            for corner in range(len(list_corners(pieces)))
        ],
        pieces,
    )


def run_algorithm(graph: Drawn, algorithm: Algorithm) -> list[Any]:
    """The values, which are the same for edges in one block and in three."""
    values = algorithm.run(whole(graph, algorithm), graph.nodes)
    again = algorithm.run(cut_graph(graph, algorithm, 3), graph.nodes)
    assert again == values
    assert len(values.column) == graph.count
    listed: list[Any] = values.column.to_pylist()
    return listed


@pytest.mark.fuzz
@settings(max_examples=FEWER)
@given(graphs(), st.sampled_from(["out", "in"]))
def test_weighted_pagerank_is_that_of_igraph_in_either_direction(graph: Drawn, way: WalkDirection) -> None:
    ranks = run_algorithm(graph, PageRank(0.85, 1e-12, 1000, way, "w"))
    # To igraph an edge of weight 0 is there; here it is never taken.
    taken = [(edge, weight) for edge, weight in zip(graph.edges, graph.weights, strict=True) if weight]
    edges = [edge if way == "out" else edge[::-1] for edge, _ in taken]
    peer = igraph.Graph(graph.count, edges, directed=True)
    assert ranks == pytest.approx(peer.pagerank(weights=[weight for _, weight in taken]), abs=1e-9)
    assert sum(ranks) == pytest.approx(1)


def test_a_walk_both_ways_ranks_by_all_edges_and_huge_weights_are_refused() -> None:
    line = Drawn(3, [(0, 1), (2, 1)], [2.0, 2.0])
    ends, middle = run_algorithm(line, PageRank(way="both"))[:2]
    assert middle == pytest.approx(0.4864864, abs=1e-6)
    assert run_algorithm(line, PageRank(way="both", weight="w")) == pytest.approx([ends, middle, ends])
    with pytest.raises(BadRequest, match="3e\\+150 or more"):
        run_algorithm(Drawn(2, [(0, 1)], [1e200]), PageRank(weight="w"))


@pytest.mark.fuzz
@settings(max_examples=FEWER)
@given(graphs(), st.sampled_from([0.5, 0.85]))
def test_pagerank_is_that_of_igraph(graph: Drawn, damping: float) -> None:
    ranks = run_algorithm(graph, PageRank(damping, tolerance=1e-12, max_iterations=1000))
    assert ranks == pytest.approx(graph.igraph.pagerank(damping=damping), abs=1e-9)
    assert sum(ranks) == pytest.approx(1)


@pytest.mark.fuzz
@settings(max_examples=FEWER)
@given(graphs())
def test_components_are_those_of_igraph(graph: Drawn) -> None:
    assert run_algorithm(graph, ConnectedComponents()) == graph.igraph.connected_components("weak").membership


@pytest.mark.fuzz
@settings(max_examples=FEWER)
@given(graphs(), st.integers(1, 6))
def test_labels_are_those_of_a_plain_reading_of_the_rule(graph: Drawn, rounds: int) -> None:
    neighbours: list[list[int]] = [[] for _ in range(graph.count)]
    for source, target in graph.edges:
        neighbours[target].append(source)
        if source != target:
            neighbours[source].append(target)
    labels = list(range(graph.count))
    for _ in range(rounds):
        votes = [Counter(labels[other] for other in others) for others in neighbours]
        labels = [
            min(vote, key=lambda label: (-vote[label], label)) if vote else own
            for own, vote in zip(labels, votes, strict=True)
        ]
    met = list(dict.fromkeys(labels))
    assert run_algorithm(graph, LabelPropagation(rounds)) == [met.index(label) for label in labels]


@pytest.mark.fuzz
@settings(max_examples=FEWER)
@given(graphs(), st.data(), st.sampled_from(["out", "in", "both"]), st.booleans())
def test_paths_are_those_of_igraph(graph: Drawn, data: st.DataObject, way: Any, weighted: bool) -> None:
    starts = data.draw(st.sets(st.integers(0, graph.count - 1), min_size=1, max_size=3))
    mode = {"out": "out", "in": "in", "both": "all"}[way]
    weights = graph.weights if weighted else None
    distances = np.array(graph.igraph.distances(sorted(starts), weights=weights, mode=mode), dtype=float)
    nearest = distances.min(axis=0)
    algorithm = ShortestPaths(tuple(f"{start:03}" for start in starts), way, "weight" if weighted else None)
    expected = [None if np.isinf(value) else pytest.approx(value) for value in nearest]
    assert run_algorithm(graph, algorithm) == expected


@pytest.mark.fuzz
@settings(max_examples=FEWER)
@given(graphs())
def test_triangles_are_those_of_igraph(graph: Drawn) -> None:
    simple = graph.igraph.as_undirected().simplify()
    expected = Counter(node for triangle in simple.cliques(3, 3) for node in triangle)
    assert run_algorithm(graph, TriangleCount()) == [expected[node] for node in range(graph.count)]


@pytest.mark.fuzz
@settings(max_examples=FEWER)
@given(graphs())
def test_degrees_are_those_of_igraph_but_for_loops(graph: Drawn) -> None:
    loops = Counter(source for source, target in graph.edges if source == target)
    assert run_algorithm(graph, Degree("out")) == graph.igraph.degree(mode="out")
    assert run_algorithm(graph, Degree("in")) == graph.igraph.degree(mode="in")
    both = graph.igraph.degree(mode="all")
    assert run_algorithm(graph, Degree()) == [number - loops[node] for node, number in enumerate(both)]
    neighbours: list[set[int]] = [set() for _ in range(graph.count)]
    for source, target in graph.edges:
        neighbours[source].add(target)
        neighbours[target].add(source)
    assert run_algorithm(graph, Degree(distinct=True)) == [len(others) for others in neighbours]


def test_a_long_path_takes_few_rounds_to_be_one_component() -> None:
    line = Drawn(4096, [(number, number + 1) for number in range(4095)])
    values = ConnectedComponents().run(whole(line, ConnectedComponents()), line.nodes)
    assert set(values.column.to_pylist()) == {0}
    assert values.rounds <= 14


@pytest.mark.parametrize("pieces", [0, 2])
def test_what_is_reached_has_a_distance_however_far_it_is(pieces: int) -> None:
    """Node 5 is not reached; node 4 is reached by a short way, too."""
    drawn = Drawn(6, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)], [1e308, 1e308, 1e308, 1e308, 2.0])
    paths = ShortestPaths(("000",), weight="w")
    edges = cut_graph(drawn, paths, pieces) if pieces else whole(drawn, paths)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = paths.run(edges, drawn.nodes)
    largest = sys.float_info.max
    assert values.column.to_pylist() == [0.0, 1e308, largest, largest, 2.0, None]


def test_a_walk_looks_only_at_what_changed() -> None:
    line = Drawn(300, [(number, number + 1) for number in range(299)])
    values = ShortestPaths(("000",)).run(whole(line, ShortestPaths(("000",))), line.nodes)
    assert values.column.to_pylist() == list(range(300))
    assert values.rounds == 300


def test_a_graph_without_nodes_has_no_values() -> None:
    empty = Drawn(0, [])
    for algorithm in (PageRank(), ConnectedComponents(), LabelPropagation(), TriangleCount(), Degree()):
        assert run_algorithm(empty, algorithm) == []


def test_ranks_that_do_not_settle_in_time_are_reported() -> None:
    graph = Drawn(3, [(0, 1), (1, 2)])
    values = PageRank(max_iterations=1).run(whole(graph, PageRank()), graph.nodes)
    assert (values.rounds, values.converged) == (1, False)
    # Two nodes that swap their labels never settle.
    pair = Drawn(2, [(0, 1)])
    swapped = LabelPropagation().run(whole(pair, LabelPropagation()), pair.nodes)
    assert (swapped.rounds, swapped.converged) == (10, False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PageRank(damping=1.0), "damping must be at least 0 and less than 1, got 1.0"),
        (lambda: PageRank(tolerance=0), "tolerance must be more than 0, got 0"),
        (lambda: PageRank(max_iterations=0), "max_iterations must be at least 1, got 0"),
        (lambda: LabelPropagation(-1), "max_iterations must be at least 1, got -1"),
        (lambda: ShortestPaths(()), "shortest paths need a node to begin at"),
        (lambda: Degree("up"), "'up' is not a direction"),  # type: ignore[arg-type]
        *[
            (lambda make=make, wrong=wrong: make(wrong), f"{name} must be {kind}, got {wrong!r}")
            for make, name, kind in (
                (lambda wrong: PageRank(damping=wrong), "damping", "a number"),
                (lambda wrong: PageRank(tolerance=wrong), "tolerance", "a number"),
                (lambda wrong: PageRank(max_iterations=wrong), "max_iterations", "a whole number"),
                (LabelPropagation, "max_iterations", "a whole number"),
            )
            for wrong in ("3", None, True, [1])
        ],
        (lambda: LabelPropagation(1.5), "max_iterations must be a whole number, got 1.5"),  # type: ignore[arg-type]
        *[
            (lambda wrong=wrong: names_of(wrong), f"shortest paths begin at nodes, got {wrong!r}")
            for wrong in (5, None, ["a", 5], b"a")
        ],
    ],
)
def test_numbers_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make()
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, None, None]), "an edge 'Road' has no 'length'"),
        (pa.array([1.5, -2.0]), "an edge 'Road' has the 'length' -2.0; a weight is not negative"),
        (pa.array([1.5, float("nan")]), "an edge 'Road' has the 'length' nan; a weight is not negative"),
    ],
)
def test_weights_that_are_none_are_refused(column: pa.Array, message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        weights_of(column, "Road", "length")
    assert caught.value.message == message
    assert caught.value.remedy


def test_nodes_are_found_by_id_and_where_that_is_not_enough_by_type() -> None:
    nodes = Numbering({"City": pa.array(["a", "x:y"]), "Town": pa.array(["a", "b"])})
    assert [nodes.found(name) for name in ("x:y", "b", "City:a", "Town:a", "City:x:y")] == [1, 3, 0, 2, 1]
    with pytest.raises(BadRequest, match="several nodes 'a'") as caught:
        nodes.found("a")
    assert caught.value.remedy == "name 'City:a' or 'Town:a'"
    with pytest.raises(BadRequest, match="no node 'Town:x:y' among: City, Town"):
        nodes.found("Town:x:y")


@pytest.mark.fuzz
@settings(max_examples=FEWER)
@given(st.lists(st.text(max_size=3), unique=True, max_size=8))
def test_numbers_follow_the_order_of_ids(ids: list[str]) -> None:
    ordered, places = sort_ids(pa.array(ids, pa.string()))
    assert ordered.to_pylist() == sorted(ids)
    assert [ordered[int(place)].as_py() for place in places] == ids


def test_ids_that_are_long_together_stay_texts_in_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_graph, "_MOST_BYTES", 1)
    monkeypatch.setattr(local_graph, "_PIECE", 2)
    ids = concat_ids(pa.chunked_array([["c", "a"], ["b"]]))
    assert ids.type == pa.large_string()
    nodes = Numbering({"Node": sort_ids(ids)[0]})
    assert nodes.found("c") == 2
    table = nodes.table(pa.array([1, 2, 3]))
    assert table.column("id").to_pylist() == ["a", "b", "c"]
    assert (table.schema.field("id").type, table.column("id").num_chunks) == (pa.string(), 2)
