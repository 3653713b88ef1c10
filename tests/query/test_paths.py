"""Shortest paths on positions, from either side and in batches of any size, against trying everything."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.topology import paths
from omnigraph.query.topology.paths import find_path_edges, find_paths
from tests.query.naive_walks import Drawn, directions, draw_walks, far_count, near_count


def ids_of(positions: Positions) -> pa.Array:
    """Ids whose order is not that of positions."""
    return pa.array([id_of(int(position)) for position in positions], pa.string())


def id_of(position: int) -> str:
    return f"{position * 7 % 10}-{position}"


def try_all(
    graph: Drawn, start: int, end: int, direction: EdgeDirection, maximum: int
) -> tuple[list[int], list[int]] | None:
    """The positions of the nodes and edges of the best path."""
    if start == end or not graph.shared:
        single = [([start, end], [edge]) for far, edge in graph.hop_edges(start, direction) if far == end]
        return min(single, key=order_of, default=None)
    best = {start: ([start], list[int]())}
    for _ in range(maximum):
        met = set(best)
        for node in met:
            nodes, edges = best[node]
            for far, edge in graph.hop_edges(node, direction):
                longer = [*nodes, far], [*edges, edge]
                if far not in met:
                    best[far] = min(best.get(far, longer), longer, key=order_of)
    return best.get(end)


def order_of(path: tuple[list[int], list[int]]) -> tuple[list[str], list[str]]:
    return [id_of(node) for node in path[0]], [id_of(edge) for edge in path[1]]


@st.composite
def asked(draw: st.DrawFn) -> tuple[Drawn, EdgeDirection, Positions, Positions, int]:
    graph = draw(draw_walks(None))
    direction = draw(st.sampled_from(directions(graph)))
    starts = st.integers(NO_ROW, near_count(graph, direction) - 1)
    ends = st.integers(NO_ROW, far_count(graph, direction) - 1)
    pairs = draw(st.lists(st.tuples(starts, ends), max_size=10))
    one, other = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    return graph, direction, one, other, draw(st.integers(1, 4))


@pytest.mark.parametrize("cells", [1, 1 << 24])
@given(asked())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_pair_gets_the_best_of_its_shortest_paths(
    cells: int, drawn: tuple[Drawn, EdgeDirection, Positions, Positions, int]
) -> None:
    graph, direction, starts, ends, maximum = drawn
    linked = graph.linked()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(paths, "_CELLS", cells)
        found = find_paths(linked, starts, ends, direction, maximum, ids_of, lambda: None)
    edges = find_path_edges(linked, found, direction, ids_of).to_pylist()
    bounds = found.bounds.tolist()
    for at, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        want = None if NO_ROW in (start, end) else try_all(graph, start, end, direction, maximum)
        length = int(found.lengths[at])
        if want is None:
            assert length == NO_ROW
            continue
        assert found.nodes[bounds[at] : bounds[at + 1]].tolist() == want[0]
        assert length == len(want[1])
        first = sum(max(0, int(one)) for one in found.lengths[:at])
        assert edges[first : first + length] == [id_of(edge) for edge in want[1]]
