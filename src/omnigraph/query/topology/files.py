"""A topology as one file: a derived thing that may be lost or damaged at any time.

The file is a mark, the format number and a checksum of the rest; then a head that lists the arrays, and the
arrays, each on a boundary that lets them be used where they lie.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.topology.adjacency import Adjacency
from omnigraph.query.topology.endpoint_codes import text_buffers
from omnigraph.query.topology.topology import Topology

FORMAT = 1

_MARK = b"\x89OGTOPO\n"
_START = struct.Struct("<8sII")  # mark, format, checksum of all that follows
_HEAD = struct.Struct("<I")  # length of the head
_BOUNDARY = 64


class _Held(msgspec.Struct, frozen=True):
    """Where an array is, counted from the first boundary behind the head."""

    type: str
    offset: int
    count: int


class _Head(msgspec.Struct, frozen=True):
    about: str
    shared: bool
    wide: bool
    """Whether offsets into texts have 64 bits."""
    simple: list[EdgeDirection]
    """The directions in which no edges are parallel."""
    built: list[EdgeDirection]
    arrays: dict[str, _Held]


def to_bytes(topology: Topology, about: str) -> bytes:
    """The file of a topology with the adjacencies that are built; `about` names the table version."""
    built = topology.built()
    plain = [direction for direction, distinct in built if not distinct]
    simple = [each for each in plain if built.get((each, True)) is built[each, False]]
    ids = {"sources": topology.sources} if topology.shared else _both_ids(topology)
    wide = any(not pa.types.is_string(held.type) for held in ids.values())
    arrays: dict[str, NDArray[Any]] = {"src": topology.src, "dst": topology.dst}
    for name, held in ids.items():
        arrays |= _text_arrays(name, held.cast(pa.large_string()) if wide else held)
    for direction in plain:
        adjacency = built[direction, False]
        arrays |= {f"{direction}.{part}": getattr(adjacency, part) for part in _PARTS}
    places, body = _laid_out(arrays)
    head = msgspec.json.encode(_Head(about, topology.shared, wide, simple, plain, places))
    before = _HEAD.pack(len(head)) + head
    rest = b"".join([before, bytes(_gap(_START.size + len(before))), *body])
    return _START.pack(_MARK, FORMAT, zlib.crc32(rest)) + rest


def from_bytes(data: bytes | memoryview, about: str) -> Topology | None:
    """The topology of a file, which must not change while it is used.

    None when the file is damaged, of another format, or about another table version.
    """
    if len(data) < _START.size + _HEAD.size:
        return None
    view = memoryview(data)
    mark, number, checksum = _START.unpack_from(view)
    if mark != _MARK or number != FORMAT or zlib.crc32(view[_START.size :]) != checksum:
        return None
    (length,) = _HEAD.unpack_from(view, _START.size)
    begin = _START.size + _HEAD.size
    try:
        head = msgspec.json.decode(view[begin : begin + length], type=_Head)
        if head.about != about:
            return None
        end = begin + length
        return _read(head, view[end + _gap(end) :])
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError):
        return None  # whole, yet not what this format holds: another program wrote it


_PARTS = ("indptr", "neighbours", "edges")


def _read(head: _Head, body: memoryview) -> Topology:
    arrays = {
        name: np.frombuffer(body, dtype=held.type, count=held.count, offset=held.offset)
        for name, held in head.arrays.items()
    }
    sources = _text("sources", arrays, head.wide)
    targets = sources if head.shared else _text("targets", arrays, head.wide)
    built: dict[tuple[EdgeDirection, bool], Adjacency] = {}
    for direction in head.built:
        adjacency = Adjacency(*(arrays[f"{direction}.{part}"] for part in _PARTS))
        built[direction, False] = adjacency
        if direction in head.simple:
            built[direction, True] = adjacency
    return Topology(sources, targets, arrays["src"], arrays["dst"], built)


def _both_ids(topology: Topology) -> dict[str, pa.Array]:
    return {"sources": topology.sources, "targets": topology.targets}


def _text_arrays(name: str, ids: pa.Array) -> dict[str, NDArray[Any]]:
    offsets, letters = text_buffers(ids)
    return {
        f"{name}.offsets": offsets - offsets[0],
        f"{name}.letters": letters[offsets[0] : offsets[-1]],
    }


def _text(name: str, arrays: dict[str, NDArray[Any]], wide: bool) -> pa.Array:
    offsets, letters = arrays[f"{name}.offsets"], arrays[f"{name}.letters"]
    type_ = pa.large_string() if wide else pa.string()
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
    ids = pa.Array.from_buffers(type_, len(offsets) - 1, buffers)
    ids.validate()
    return ids


def _laid_out(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, _Held], list[bytes | memoryview]]:
    places: dict[str, _Held] = {}
    body: list[bytes | memoryview] = []
    offset = 0
    for name, array in arrays.items():
        held = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        places[name] = _Held(held.dtype.str, offset, len(held))
        body += [held.data, bytes(_gap(held.nbytes))]
        offset += held.nbytes + _gap(held.nbytes)
    return places, body


def _gap(length: int) -> int:
    """What is missing to the next boundary."""
    return -length % _BOUNDARY
