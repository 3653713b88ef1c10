"""Files of topologies: what is written is read back, and what is damaged is not."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.topology.file_blocks import Bytes, DamagedFile
from omnigraph.query.topology.topology import Topology, build_topology, extend_topology
from omnigraph.query.topology.topology_file import (
    FORMAT,
    BytesFile,
    is_whole,
    open_topology,
    topology_to_bytes,
)
from tests.query.naive_walks import DIRECTIONS, Drawn, directions, draw_walks

ABOUT = "edge:Knows main 7"


def _sample(shared: bool = True) -> Topology:
    topology = build_topology(
        pa.array(["ann", "bob", "ann", "ann"]), pa.array(["bob", "cem", "bob", "ann"]), shared
    )
    topology.adjacency("out", distinct=True)
    topology.adjacency("in")
    return topology


def _read(data: bytes, about: str = ABOUT) -> Topology | None:
    return open_topology(BytesFile(memoryview(data)), about)


def _require_same(found: Topology | None, expected: Topology) -> None:
    assert found is not None
    assert found.sources.to_pylist() == expected.sources.to_pylist()
    assert found.targets.to_pylist() == expected.targets.to_pylist()
    assert found.shared == expected.shared
    assert (found.src.tolist(), found.dst.tolist()) == (expected.src.tolist(), expected.dst.tolist())
    assert found.dead == expected.dead
    assert found.loops().tolist() == expected.loops().tolist()
    for direction in DIRECTIONS if expected.shared else DIRECTIONS[:2]:
        for distinct in (False, True):
            one = found.adjacency(direction, distinct=distinct)
            other = expected.adjacency(direction, distinct=distinct)
            assert one.indptr.tolist() == other.indptr.tolist()
            assert one.neighbours.tolist() == other.neighbours.tolist()
            assert one.edges.tolist() == other.edges.tolist()


@given(draw_walks(), st.sets(st.tuples(st.sampled_from(DIRECTIONS), st.booleans())))
def test_a_topology_is_read_as_it_was_written(graph: Drawn, built: set[tuple[EdgeDirection, bool]]) -> None:
    topology = graph.topology()
    for direction, distinct in built:
        if direction in directions(graph):
            topology.adjacency(direction, distinct=distinct)
    found = _read(topology_to_bytes(topology, ABOUT))
    assert found is not None
    assert topology.built().keys() == found.known()
    _require_same(found, topology)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()])
def test_ids_of_every_kind_of_text_are_kept(type_: pa.DataType) -> None:
    ids = ["", "\N{GRINNING FACE}", "a" * 70, "7"]
    topology = build_topology(pa.array(ids, type=type_), pa.array(ids[::-1], type=type_), True)
    _require_same(_read(topology_to_bytes(topology, ABOUT)), topology)


def test_what_is_known_to_have_no_parallel_edges_is_still_known_after_reading() -> None:
    topology = build_topology(pa.array(["a", "b"]), pa.array(["b", "c"]), True)
    topology.adjacency("out", distinct=True)
    found = _read(topology_to_bytes(topology, ABOUT))
    assert found is not None
    assert found.adjacency("out", distinct=True) is found.adjacency("out")


def test_arrays_are_used_where_they_lie_in_the_file() -> None:
    data = topology_to_bytes(_sample(), ABOUT)
    found = _read(data)
    assert found is not None
    whole = np.frombuffer(data, dtype=np.uint8)
    assert np.shares_memory(found.src, whole)
    assert np.shares_memory(found.adjacency("out").neighbours, whole)


def test_a_topology_that_was_read_can_be_extended() -> None:
    ids = [str(number) for number in range(140)]
    topology = build_topology(pa.array(ids), pa.array(ids[1:] + ids[:1]), True)
    topology.adjacency("out")
    found = _read(topology_to_bytes(topology, ABOUT))
    assert found is not None
    change = (np.array([3]), pa.array(["x"]), pa.array(["5"]))
    _require_same(extend_topology(found, *change), extend_topology(topology, *change))


def test_a_file_about_another_table_version_is_ignored() -> None:
    assert _read(topology_to_bytes(_sample(), ABOUT), "edge:Knows main 8") is None


@pytest.mark.parametrize("shared", [True, False])
def test_damage_at_any_byte_is_noticed_or_does_no_harm(shared: bool) -> None:
    topology = _sample(shared)
    data = topology_to_bytes(topology, ABOUT)
    harmless = 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x41
        found = _read(bytes(damaged))
        if found is None:
            continue
        if is_whole(BytesFile(memoryview(damaged)), ABOUT):
            _require_same(found, topology)  # a byte between the head and the arrays
            harmless += 1
            continue
        with pytest.raises(DamagedFile):
            _require_same(found, topology)
    assert harmless < 64


def test_only_what_is_wanted_is_read() -> None:
    data = topology_to_bytes(_sample(), ABOUT)

    class Counted(BytesFile):
        """A file that remembers where it was read."""

        arrays: ClassVar[list[int]] = []

        def fetch(self, start: int, room: Bytes, stretches: Iterable[tuple[int, int]]) -> None:
            self.arrays.append(start)
            super().fetch(start, room, stretches)

    found = open_topology(Counted(memoryview(data)), ABOUT)
    assert found is not None
    assert found.adjacency("out").neighbours.tolist() == _sample().adjacency("out").neighbours.tolist()
    assert len(Counted.arrays) == 2
    before = found.nbytes
    assert found.adjacency("out").edges.tolist() == _sample().adjacency("out").edges.tolist()
    assert len(Counted.arrays) == 3
    assert found.nbytes > before


def test_a_file_says_whose_positions_its_codes_are() -> None:
    found = _read(topology_to_bytes(_sample(), ABOUT, ("node:Person 3", "")))
    assert found is not None
    assert found.shape.numbered_by == ("node:Person 3", "")


def test_a_file_cut_short_or_with_something_behind_it_is_ignored() -> None:
    data = topology_to_bytes(_sample(), ABOUT)
    for length in range(len(data)):
        assert _read(data[:length]) is None, length
    assert _read(data + b"\0") is None


@given(st.binary(max_size=200))
def test_any_other_bytes_are_ignored(data: bytes) -> None:
    assert _read(data) is None


def _head(adjacencies: str = "", **arrays: str) -> str:
    held = dict.fromkeys(_ARRAYS, '{"type":"<i4","offset":0,"count":0,"checksums":""}') | arrays
    listed = ",".join(f'"{name.replace("_", ".")}":{text}' for name, text in held.items())
    counts = '"edges":0,"dead":0,"codes":[0,0],"numbered_by":["",""]'
    return (
        f'{{"about":"A","size":100,"shared":true,"wide":false,{counts},'
        f'"adjacencies":[{adjacencies}],"arrays":{{{listed}}}}}'
    )


_ARRAYS = ("loops", "src", "dst", "sources_offsets", "sources_letters")


def _write_head(head: str) -> bytes:
    text = head.encode()
    start = (
        topology_to_bytes(_sample(), "A")[:8]
        + struct.pack("<III", FORMAT, len(text), zlib.crc32(text))
        + text
    )
    return start + bytes(-len(start) % 64) + bytes(100)


def test_a_head_of_ours_is_understood() -> None:
    assert _read(_write_head(_head()), "A") is not None


@pytest.mark.parametrize(
    "head",
    [
        "",
        "{}",
        "[]",
        "\N{GRINNING FACE}",
        _head('"up"'),
        _head('{"direction":"up","simple":true,"distinct":false}'),
        _head('{"direction":"out","simple":true,"distinct":false}'),
        _head(src='{"type":"<i4","offset":0,"count":99,"checksums":""}'),
        _head(src='{"type":"what","offset":0,"count":0,"checksums":""}'),
        _head(src='{"type":"<i4","offset":-4,"count":1,"checksums":""}'),
        _head(src='{"type":"<i4","offset":4,"count":-1,"checksums":""}'),
        _head(src='{"type":"<i4","offset":0,"count":1,"checksums":""}'),
        _head(src='{"type":"<i4","offset":0,"count":0,"checksums":"AAAAAAAAAAA="}'),
        _head(src='{"type":"O","offset":0,"count":1,"checksums":""}'),
    ],
)
def test_a_whole_file_of_another_program_is_ignored(head: str) -> None:
    assert _read(_write_head(head), "A") is None


def test_a_file_of_a_later_format_is_ignored() -> None:
    data = topology_to_bytes(_sample(), ABOUT)
    assert _read(data[:8] + struct.pack("<I", FORMAT + 1) + data[12:]) is None
