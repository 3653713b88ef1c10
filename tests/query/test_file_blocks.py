"""Neighbours of few nodes are read from a file without the rest of it, and are those of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.frame import NO_ROW, Positions
from omnigraph.query.topology import walk
from omnigraph.query.topology.file_blocks import BLOCK, WORD, Bytes, DamagedFile, compute_checksums
from omnigraph.query.topology.linked_topology import FEW, FewSteps, LinkedTopology
from omnigraph.query.topology.saved_topology import LocalFile
from omnigraph.query.topology.topology import Topology, build_topology
from omnigraph.query.topology.topology_file import BytesFile, open_topology, topology_to_bytes

NODES = 5000
ABOUT = "edge:Knows main 7"


class Counted(BytesFile):
    """A file that remembers which stretches of it were wanted."""

    fetched: list[tuple[int, int]]

    def fetch(self, start: int, room: Bytes, stretches: Iterable[tuple[int, int]]) -> None:
        self.fetched.extend((start + begin, start + min(end, len(room))) for begin, end in stretches)
        super().fetch(start, room, stretches)


@cache
def topology() -> Topology:
    """Some 25,000 edges with parallel ones and self-loops: several blocks of neighbours, few of offsets."""
    random = np.random.default_rng(3)
    ids = pa.array([str(number) for number in range(NODES)])
    sources, targets = (ids.take(pa.array(random.integers(0, NODES, 25_000))) for _ in range(2))
    made = build_topology(sources, targets, True, None, (ids, None))
    assert made.sources is ids, "codes are positions"
    for direction in ("out", "in"):
        made.adjacency(direction, distinct=True)
    return made


@cache
def topology_bytes() -> bytes:
    return topology_to_bytes(topology(), ABOUT)


def open_stored(data: bytes | None = None) -> tuple[LinkedTopology, list[tuple[int, int]]]:
    """A link to a file of which nothing was read, and what will have been fetched."""
    file = Counted(memoryview(topology_bytes() if data is None else data))
    object.__setattr__(file, "fetched", [])
    found = open_topology(file, ABOUT)
    assert found is not None
    return LinkedTopology(found, None, NODES), file.fetched


def some(*nodes: int) -> Positions:
    return np.array(nodes, dtype=np.int64)


def rows(found: tuple[Positions, ...]) -> list[tuple[int, ...]]:
    return sorted(zip(*(column.tolist() for column in found), strict=True))


START = some(17, NO_ROW, 4999, 0, 17, 2500)


@pytest.mark.parametrize("direction", ["out", "in"])
def test_few_nodes_have_the_neighbours_they_have_in_memory(direction: EdgeDirection) -> None:
    whole = LinkedTopology(topology(), np.arange(NODES), NODES)
    for distinct in (True, False):
        linked, _ = open_stored()
        assert isinstance(linked.steps_from(START, direction, distinct=distinct), FewSteps)
        assert rows(walk.hop(linked, START, direction, distinct=distinct)) == rows(
            walk.hop(whole, START, direction, distinct=distinct)
        )
        fanout = walk.count_hop_rows(linked, START, direction, distinct=distinct)
        assert fanout.tolist() == walk.count_hop_rows(whole, START, direction, distinct=distinct).tolist()
    linked, _ = open_stored()
    assert rows(walk.hop_edges(linked, START, direction)) == rows(walk.hop_edges(whole, START, direction))
    for bounds in ((1, 2), (2, 2), (1, 3)):
        linked, _ = open_stored()
        found = walk.find_reached(linked, START, direction, *bounds)
        assert rows(found) == rows(walk.find_reached(whole, START, direction, *bounds))


def test_nothing_is_read_but_the_blocks_of_the_neighbours() -> None:
    linked, fetched = open_stored()
    before = linked.topology.nbytes
    walk.hop(linked, some(17), "out")
    assert len(fetched) == 2, "a block of offsets, one of neighbours"
    assert sum(end - begin for begin, end in fetched) <= 2 * BLOCK
    walk.hop(linked, some(17), "out")
    assert len(fetched) == 2, "once"
    walk.hop_edges(linked, some(17), "out")
    assert len(fetched) == 5, "where edges are parallel, those of all edges are others"
    assert 0 < linked.topology.nbytes - before <= 5 * BLOCK
    assert linked.nbytes == 0, "positions are codes, and nothing is made of them"


def test_many_nodes_and_many_walks_read_all_neighbours_at_once() -> None:
    many = np.arange(FEW + 1)
    linked, _ = open_stored()
    assert not isinstance(linked.steps_from(many, "out", distinct=True), FewSteps)
    linked, fetched = open_stored()
    for _ in range(200):
        walk.hop(linked, some(17), "out")
    assert not isinstance(linked.steps_from(some(17), "out", distinct=True), FewSteps)
    known = len(fetched)
    walk.hop(linked, np.arange(NODES), "out")
    assert len(fetched) == known
    assert linked.topology.state("out", distinct=True) == "in memory"


def test_only_damage_of_what_is_read_counts() -> None:
    linked, fetched = open_stored()
    walk.hop(linked, some(17), "out")
    begin, end = fetched[-1]
    for place in (begin, (begin + end) // 2, end - 1):
        damaged = bytearray(topology_bytes())
        damaged[place] ^= 1
        for nodes, harmed in ((some(17), True), (some(4999), False)):
            linked, _ = open_stored(bytes(damaged))
            if harmed:
                with pytest.raises(DamagedFile):
                    walk.hop(linked, nodes, "out")
            else:
                walk.hop(linked, nodes, "out")
            with pytest.raises(DamagedFile):
                walk.hop(linked, np.arange(NODES), "out")


def test_threads_that_read_one_file_get_what_is_in_it() -> None:
    linked, fetched = open_stored()
    whole = LinkedTopology(topology(), np.arange(NODES), NODES)

    def hops(seed: int) -> bool:
        start = np.random.default_rng(seed % 4).integers(0, NODES, 8)
        return rows(walk.hop(linked, start, "out")) == rows(walk.hop(whole, start, "out"))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(hops, range(32)))
    assert len(fetched) == len(set(fetched)), "nothing was read twice"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    place = tmp_path / "file"
    place.write_bytes(topology_bytes())
    return place


def linked_to(place: Path) -> LinkedTopology:
    found = open_topology(LocalFile(place), ABOUT)
    assert found is not None
    return LinkedTopology(found, None, NODES)


def test_a_file_that_is_cut_short_is_damaged_and_nothing_worse(kept: Path) -> None:
    linked = linked_to(kept)
    kept.write_bytes(topology_bytes()[:20_000])
    with pytest.raises(DamagedFile):
        walk.hop(linked, some(4999), "in")


def test_a_file_that_was_removed_or_replaced_is_still_read_by_those_who_had_it(kept: Path) -> None:
    whole = LinkedTopology(topology(), np.arange(NODES), NODES)
    linked = linked_to(kept)
    walk.hop(linked, some(17), "out")
    other = kept.with_name("other")
    other.write_bytes(bytes(len(topology_bytes())))
    other.replace(kept)
    assert rows(walk.hop(linked, START, "in")) == rows(walk.hop(whole, START, "in"))
    kept.unlink()
    everybody = np.arange(NODES)
    assert rows(walk.hop_edges(linked, everybody, "out")) == rows(walk.hop_edges(whole, everybody, "out"))


def test_files_are_closed_when_they_are_not_needed(kept: Path) -> None:
    def opened_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened_files()
    linked = linked_to(kept)
    walk.hop(linked, some(17), "out")
    assert opened_files() == before + 1
    del linked
    assert opened_files() == before


@pytest.mark.parametrize("words", [0, 1, 7, BLOCK // WORD, BLOCK // WORD + 3])
def test_a_checksum_tells_any_word_that_changed_its_value_or_its_place(words: int) -> None:
    data = np.random.default_rng(words).integers(0, 256, words * WORD, dtype=np.uint8)
    sums = compute_checksums(data)
    assert len(sums) == -(-len(data) // BLOCK)
    for place in range(0, len(data), 999):
        for bit in range(8):
            changed = data.copy()
            changed[place] ^= np.uint8(1 << bit)
            assert (compute_checksums(changed) != sums).sum() == 1
    if words > 1:
        moved = data.reshape(-1, WORD).copy()
        moved[[0, -1]] = moved[[-1, 0]]
        assert (compute_checksums(moved.reshape(-1)) != sums).any()
