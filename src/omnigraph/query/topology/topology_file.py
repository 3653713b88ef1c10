"""A topology as one file: a derived thing that may be lost or damaged at any time.

The file is a mark, the format number, length and checksum of a head, the head, and then arrays, each on a
boundary. The head says where each array is and has the checksums of its blocks, so that a walk reads only
what it needs, and never uses anything that is not what was written.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.topology.adjacency import Adjacency
from omnigraph.query.topology.endpoint_codes import Codes, text_buffers
from omnigraph.query.topology.file_blocks import (
    BLOCK,
    WORD,
    AdjacencyReader,
    Bytes,
    CheckedArray,
    DamagedFile,
    File,
    Sums,
    compute_checksums,
)
from omnigraph.query.topology.topology import Kind, Shape, Stored, Topology

FORMAT = 3

_MARK = b"\x89OGTOPO\n"
_START = struct.Struct("<8sIII")  # mark, format, length of the head, checksum of the head
_BOUNDARY = 64
_TYPES = {name: np.dtype(name) for name in ("<i8", "<i4", "|u1")}


@dataclass(frozen=True, slots=True)
class BytesFile:
    """A file that was read at once."""

    data: memoryview

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self.data)

    @property
    def held(self) -> int:
        """All of them are in memory."""
        return len(self.data)

    def read(self, start: int, length: int) -> memoryview:
        """A stretch, where it lies."""
        return self.data[start : start + length]

    def room(self, start: int, length: int) -> Bytes:
        """The same."""
        return np.frombuffer(self.read(start, length), dtype=np.uint8)

    def fetch(self, start: int, room: Bytes, stretches: Iterable[tuple[int, int]]) -> None:
        """Everything is where it belongs."""


class _Held(msgspec.Struct, frozen=True):
    """Where an array is, counted from the first boundary behind the head; it is read up to the next one."""

    type: str
    offset: int
    count: int
    checksums: bytes

    @property
    def nbytes(self) -> int:
        return _TYPES[self.type].itemsize * self.count

    @property
    def length(self) -> int:
        return self.nbytes + _gap_to_boundary(self.nbytes)

    @property
    def sums(self) -> Sums:
        return np.frombuffer(self.checksums, dtype="<u8")

    def is_inside(self, size: int) -> bool:
        known = self.type in _TYPES and min(self.offset, self.count) >= 0
        if not known or self.offset + self.length > size:
            return False
        return len(self.checksums) == -(-self.length // BLOCK) * WORD


class _Adjacent(msgspec.Struct, frozen=True):
    """An adjacency: its arrays have names that begin with that of the direction."""

    direction: EdgeDirection
    simple: bool
    """No edges are parallel: every neighbour is there once anyway."""
    distinct: bool
    """There are further arrays, with every neighbour once."""


class _Head(msgspec.Struct, frozen=True):
    about: str
    size: int
    """Bytes from the first boundary to the end of the file."""
    shared: bool
    wide: bool
    """Whether offsets into texts have 64 bits."""
    edges: int
    dead: int
    codes: tuple[int, int]
    numbered_by: tuple[str, str]
    adjacencies: list[_Adjacent]
    arrays: dict[str, _Held]


_decoder = msgspec.json.Decoder(_Head)


# --- writing -----------------------------------------------------------------------------------------


def topology_to_bytes(topology: Topology, about: str, numbered_by: tuple[str, str] = ("", "")) -> bytes:
    """The file of a topology with the adjacencies that are built.

    `about` names the version of the edge table, `numbered_by` those of the node tables whose positions
    are the codes.
    """
    built = topology.built()
    listed = [_list_adjacent(built, direction) for direction, distinct in built if not distinct]
    ids = {"sources": topology.sources} if topology.shared else _both_ids(topology)
    wide = any(not pa.types.is_string(held.type) for held in ids.values())
    arrays: dict[str, NDArray[Any]] = {"loops": topology.loops()}
    for each in listed:
        arrays |= _adjacency_arrays(built, each)
    for name, held in ids.items():
        arrays |= _text_arrays(name, held.cast(pa.large_string()) if wide else held)
    arrays |= {"src": topology.src, "dst": topology.dst}
    places, body = _laid_out(arrays)
    shape = topology.shape
    codes = (shape.sources, shape.targets)
    size = sum(map(len, body))
    head = msgspec.json.encode(
        _Head(about, size, shape.shared, wide, shape.edges, shape.dead, codes, numbered_by, listed, places)
    )
    start = _START.pack(_MARK, FORMAT, len(head), zlib.crc32(head)) + head
    return b"".join([start, bytes(_gap_to_boundary(len(start))), *body])


def _list_adjacent(built: dict[Kind, Adjacency], direction: EdgeDirection) -> _Adjacent:
    once = built.get((direction, True))
    simple = once is built[direction, False]
    return _Adjacent(direction, simple, once is not None and not simple)


def _adjacency_arrays(built: dict[Kind, Adjacency], listed: _Adjacent) -> dict[str, NDArray[Any]]:
    kinds = [False, True] if listed.distinct else [False]
    return {
        _name_array(listed.direction, distinct, part): getattr(built[listed.direction, distinct], part)
        for distinct in kinds
        for part in _PARTS
    }


_PARTS = ("indptr", "neighbours", "edges")


def _name_array(direction: EdgeDirection, distinct: bool, part: str) -> str:
    return f"{direction}.{'once.' if distinct else ''}{part}"


def _both_ids(topology: Topology) -> dict[str, pa.Array]:
    return {"sources": topology.sources, "targets": topology.targets}


def _text_arrays(name: str, ids: pa.Array) -> dict[str, NDArray[Any]]:
    offsets, letters = text_buffers(ids)
    return {
        f"{name}.offsets": offsets - offsets[0],
        f"{name}.letters": letters[offsets[0] : offsets[-1]],
    }


def _laid_out(arrays: dict[str, NDArray[Any]]) -> tuple[dict[str, _Held], list[memoryview]]:
    places: dict[str, _Held] = {}
    body: list[memoryview] = []
    offset = 0
    for name, array in arrays.items():
        held = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        data = np.append(held.view(np.uint8), np.zeros(_gap_to_boundary(held.nbytes), dtype=np.uint8))
        places[name] = _Held(
            held.dtype.str, offset, len(held), compute_checksums(data).astype("<u8").tobytes()
        )
        body.append(data.data)
        offset += len(data)
    return places, body


def _gap_to_boundary(length: int) -> int:
    """What is missing to the next boundary."""
    return -length % _BOUNDARY


# --- reading -----------------------------------------------------------------------------------------


def open_topology(file: File, about: str) -> Topology | None:
    """The topology in a file, of which only the head is read now.

    None when the head is damaged, of another format, or about another table version. When an array turns
    out to be damaged later, reading it raises `DamagedFile`.
    """
    found = _read_filed(file, about)
    return None if found is None else Topology(_read_shape(found.head, file.held), found)


def is_whole(file: File, about: str) -> bool:
    """Whether all of a file is what was written about this table version; all of it is read."""
    found = _read_filed(file, about)
    try:
        return found is not None and all(found.array(name) is not None for name in found.head.arrays)
    except DamagedFile:
        return False


def _read_filed(file: File, about: str) -> _Filed | None:
    found = _read_head(file)
    if found is None:
        return None
    head, begin = found
    if head.about != about or file.size != begin + head.size or not _has_arrays(head):
        return None
    return _Filed(file, head, begin)


def _read_head(file: File) -> tuple[_Head, int] | None:
    """The head, and where the arrays begin."""
    start = file.read(0, _START.size)
    if len(start) < _START.size:
        return None
    mark, number, length, checksum = _START.unpack(start)
    if mark != _MARK or number != FORMAT or length > file.size:
        return None
    text = file.read(_START.size, length)
    if zlib.crc32(text) != checksum:
        return None
    end = _START.size + length
    try:
        return _decoder.decode(text), end + _gap_to_boundary(end)
    except msgspec.MsgspecError:
        return None  # another program wrote it


def _has_arrays(head: _Head) -> bool:
    """Whether everything is there that must be; a head of another program may say anything."""
    sides = ("sources",) if head.shared else ("sources", "targets")
    names = {"src", "dst", "loops", *(f"{side}.{part}" for side in sides for part in ("offsets", "letters"))}
    for each in head.adjacencies:
        kinds = (False, True) if each.distinct else (False,)
        names |= {_name_array(each.direction, distinct, part) for distinct in kinds for part in _PARTS}
    return names <= head.arrays.keys() and all(held.is_inside(head.size) for held in head.arrays.values())


def _read_shape(head: _Head, held: int) -> Shape:
    stored: dict[Kind, Stored] = {}
    for each in head.adjacencies:
        stored[each.direction, False] = _stored_state(head, each.direction, distinct=False)
        if each.simple:
            stored[each.direction, True] = stored[each.direction, False]
        elif each.distinct:
            stored[each.direction, True] = _stored_state(head, each.direction, distinct=True)
    return Shape(head.shared, head.edges, head.dead, *head.codes, head.numbered_by, stored, held)


def _stored_state(head: _Head, direction: EdgeDirection, *, distinct: bool) -> Stored:
    indptr, neighbours, edges = (
        head.arrays[_name_array(direction, distinct, part)].nbytes for part in _PARTS
    )
    return Stored(indptr + neighbours, edges)


class _Filed:
    """Arrays that are read and checked when they are asked for."""

    def __init__(self, file: File, head: _Head, begin: int) -> None:
        self._file = file
        self.head = head
        self._begin = begin

    def sources(self) -> pa.Array:
        """The ids at the source ends."""
        return self._read_text("sources")

    def targets(self) -> pa.Array:
        """The ids at the target ends."""
        return self._read_text("targets")

    def src(self) -> Codes:
        """The codes at the source ends."""
        return self.array("src")

    def dst(self) -> Codes:
        """The codes at the target ends."""
        return self.array("dst")

    def loops(self) -> Codes:
        """The codes of nodes with an edge to themselves."""
        return self.array("loops")

    def adjacency(self, kind: Kind) -> AdjacencyReader:
        """An adjacency, of which runs can be read."""
        indptr, neighbours, edges = (self._open_blocks(_name_array(*kind, part)) for part in _PARTS)
        return AdjacencyReader(indptr, neighbours, edges)

    def _read_text(self, name: str) -> pa.Array:
        offsets, letters = self.array(f"{name}.offsets"), self.array(f"{name}.letters")
        type_ = pa.large_string() if self.head.wide else pa.string()
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        return pa.Array.from_buffers(type_, len(offsets) - 1, buffers)

    def array(self, name: str) -> NDArray[Any]:
        """An array by its name in the file."""
        return self._open_blocks(name).whole()

    def _open_blocks(self, name: str) -> CheckedArray:
        held = self.head.arrays[name]
        start = self._begin + held.offset
        return CheckedArray(self._file, start, (held.type, held.count), held.length, held.sums)
