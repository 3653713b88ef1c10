"""Files of topologies: what is written is read back, and what is damaged is not."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.topology.files import FORMAT, from_bytes, to_bytes
from omnigraph.query.topology.topology import Topology, build, extended
from tests.query.naive_walks import DIRECTIONS, Drawn, directions, drawn

ABOUT = "edge:Knows main 7"


def _sample(shared: bool = True) -> Topology:
    topology = build(pa.array(["ann", "bob", "ann", "ann"]), pa.array(["bob", "cem", "bob", "ann"]), shared)
    topology.adjacency("out", distinct=True)
    topology.adjacency("in")
    return topology


def _require_same(found: Topology | None, expected: Topology) -> None:
    assert found is not None
    assert found.sources.to_pylist() == expected.sources.to_pylist()
    assert found.targets.to_pylist() == expected.targets.to_pylist()
    assert found.shared == expected.shared
    assert (found.src.tolist(), found.dst.tolist()) == (expected.src.tolist(), expected.dst.tolist())
    assert found.dead == expected.dead
    for direction in DIRECTIONS if expected.shared else DIRECTIONS[:2]:
        for distinct in (False, True):
            one = found.adjacency(direction, distinct=distinct)
            other = expected.adjacency(direction, distinct=distinct)
            assert one.indptr.tolist() == other.indptr.tolist()
            assert one.neighbours.tolist() == other.neighbours.tolist()
            assert one.edges.tolist() == other.edges.tolist()


@given(drawn(), st.sets(st.tuples(st.sampled_from(DIRECTIONS), st.booleans())))
def test_a_topology_is_read_as_it_was_written(graph: Drawn, built: set[tuple[EdgeDirection, bool]]) -> None:
    topology = graph.topology()
    for direction, distinct in built:
        if direction in directions(graph):
            topology.adjacency(direction, distinct=distinct)
    found = from_bytes(to_bytes(topology, ABOUT), ABOUT)
    assert found is not None
    plain = {(direction, distinct) for direction, distinct in topology.built() if not distinct}
    assert plain == {key for key in found.built() if not key[1]}
    _require_same(found, topology)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string(), pa.string_view()])
def test_ids_of_every_kind_of_text_are_kept(type_: pa.DataType) -> None:
    ids = ["", "\N{GRINNING FACE}", "a" * 70, "7"]
    topology = build(pa.array(ids, type=type_), pa.array(ids[::-1], type=type_), True)
    _require_same(from_bytes(to_bytes(topology, ABOUT), ABOUT), topology)


def test_what_is_known_to_have_no_parallel_edges_is_still_known_after_reading() -> None:
    topology = build(pa.array(["a", "b"]), pa.array(["b", "c"]), True)
    topology.adjacency("out", distinct=True)
    found = from_bytes(to_bytes(topology, ABOUT), ABOUT)
    assert found is not None
    assert found.built()["out", True] is found.built()["out", False]


def test_arrays_are_used_where_they_lie_in_the_file() -> None:
    data = to_bytes(_sample(), ABOUT)
    found = from_bytes(data, ABOUT)
    assert found is not None
    whole = np.frombuffer(data, dtype=np.uint8)
    assert np.shares_memory(found.src, whole)
    assert np.shares_memory(found.adjacency("out").neighbours, whole)


def test_a_topology_that_was_read_can_be_extended() -> None:
    ids = [str(number) for number in range(140)]
    topology = build(pa.array(ids), pa.array(ids[1:] + ids[:1]), True)
    topology.adjacency("out")
    found = from_bytes(to_bytes(topology, ABOUT), ABOUT)
    assert found is not None
    change = (np.array([3]), pa.array(["x"]), pa.array(["5"]))
    _require_same(extended(found, *change), extended(topology, *change))


def test_a_file_about_another_table_version_is_ignored() -> None:
    assert from_bytes(to_bytes(_sample(), ABOUT), "edge:Knows main 8") is None


@pytest.mark.parametrize("shared", [True, False])
def test_damage_at_any_byte_is_noticed(shared: bool) -> None:
    data = to_bytes(_sample(shared), ABOUT)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x41
        assert from_bytes(bytes(damaged), ABOUT) is None, place


def test_a_file_cut_short_or_with_something_behind_it_is_ignored() -> None:
    data = to_bytes(_sample(), ABOUT)
    for length in range(len(data)):
        assert from_bytes(data[:length], ABOUT) is None, length
    assert from_bytes(data + b"\0", ABOUT) is None


@given(st.binary(max_size=200))
def test_any_other_bytes_are_ignored(data: bytes) -> None:
    assert from_bytes(data, ABOUT) is None


def _head(built: str = "", arrays: str = "") -> str:
    return f'{{"about":"A","shared":true,"wide":false,"simple":[],"built":[{built}],"arrays":{{{arrays}}}}}'


@pytest.mark.parametrize(
    "head",
    [
        "",
        "{}",
        "[]",
        "\N{GRINNING FACE}",
        _head(),
        _head(built='"up"'),
        _head(arrays='"src":{"type":"<i4","offset":0,"count":99}'),
        _head(arrays='"src":{"type":"what","offset":0,"count":0}'),
        _head(arrays='"src":{"type":"<i4","offset":-4,"count":1}'),
        _head(arrays='"src":{"type":"O","offset":0,"count":1}'),
    ],
)
def test_a_whole_file_of_another_program_is_ignored(head: str) -> None:
    start = to_bytes(_sample(), "A")[:8]
    text = head.encode()
    rest = struct.pack("<I", len(text)) + text + bytes(100)
    assert from_bytes(start + struct.pack("<II", FORMAT, zlib.crc32(rest)) + rest, "A") is None


def test_a_file_of_a_later_format_is_ignored() -> None:
    data = to_bytes(_sample(), ABOUT)
    assert from_bytes(data[:8] + struct.pack("<I", FORMAT + 1) + data[12:], ABOUT) is None
