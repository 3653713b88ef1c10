"""Which text each vector belongs to, as far as it was made here or seen before.

A vector out of date looks like any other, so every vector that is made is noted with its text, before it can
be seen anywhere. A note is true for ever and for every branch: it says that this vector of this entity
belongs to that text, and nothing about what is stored where. So notes need no commit, survive merges,
compactions and cleanups, and a note whose vector never landed does no harm.
"""

from __future__ import annotations

from dataclasses import field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import fnv1a64
from omnigraph.engine.graph.root import Root
from omnigraph.errors import Unavailable
from omnigraph.storage.location import Location

Digests = NDArray[np.uint64]

_U64 = np.uint64
_WORD = 8
_WHOLE = _U64(2**64 - 1)
_LONG = 4096
"""Texts of more bytes have so many words that one text at a time is faster than one word of all of them."""


def text_digests(texts: pa.Array) -> Digests:
    """A digest of all bytes of each text, the same in every process; null counts as empty."""
    offsets, data = _bytes_of(pc.fill_null(texts, "").cast(pa.large_string()))
    lengths = np.diff(offsets)
    # Zeros behind, so that a word over the end of the last text is still inside.
    padded = np.zeros(len(data) + _WORD, np.uint8)
    padded[: len(data)] = data
    words: Digests = np.ndarray((len(data) + 1,), np.dtype("<u8"), padded, 0, (1,))
    digests = _mix_bits(lengths.astype(_U64))
    for row in np.flatnonzero(lengths > _LONG).tolist():
        digests[row] = _of_bytes(data[offsets[row] : offsets[row + 1]])
    here = np.flatnonzero((lengths > 0) & (lengths <= _LONG))
    at = 0
    while here.size:
        digests[here] = _mix_bits(digests[here] ^ _read_words(words, offsets[here] + at, lengths[here] - at))
        at += _WORD
        here = here[lengths[here] > at]
    return digests


def vector_digests(vectors: pa.FixedSizeListArray) -> Digests:
    """A digest of the numbers of each vector; 0 where there is none."""
    digests = np.zeros(len(vectors), _U64)
    valid = vectors.is_valid().to_numpy(zero_copy_only=False)
    if not valid.any():
        return digests
    numbers = vectors.filter(pa.array(valid)).flatten().to_numpy().astype("<f4", copy=False)
    matrix = numbers.view("<u4").reshape(int(valid.sum()), -1)
    # Sums of products with fixed odd numbers, one for each place: a column at a time, whatever the dimension.
    factors = _mix_bits(np.arange(1, matrix.shape[1] + 1, dtype=_U64)) | _U64(1)
    total = np.zeros(len(matrix), _U64)
    for place, factor in enumerate(factors):
        total += matrix[:, place] * factor
    digests[valid] = _mix_bits(total)
    return digests


def join_digests(*parts: Digests) -> Digests:
    """One digest of several, in this order."""
    whole = parts[0]
    for part in parts[1:]:
        whole = _mix_bits(whole * _U64(3) ^ part)
    return whole


def text_digest(text: str) -> np.uint64:
    """The digest of one text."""
    return np.uint64(text_digests(pa.array([text], pa.string()))[0])


def _bytes_of(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    _, bounds, letters = texts.buffers()
    if not len(texts) or letters is None:
        return np.zeros(len(texts) + 1, np.int64), np.empty(0, np.uint8)
    offsets = np.frombuffer(bounds, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return offsets - offsets[0], np.frombuffer(letters, np.uint8)[offsets[0] : offsets[-1]]


def _of_bytes(text: NDArray[np.uint8]) -> int:
    return int.from_bytes(blake2b(text.tobytes(), digest_size=_WORD).digest(), "little")


def _read_words(words: Digests, starts: NDArray[np.int64], left: NDArray[np.int64]) -> Digests:
    """Up to eight bytes of each text, without those of its neighbour."""
    unused = np.maximum(_WORD - left, 0).astype(_U64) * _U64(8)
    return words[starts] & (_WHOLE >> unused)


def _mix_bits(values: NDArray[Any]) -> Digests:
    """Values whose bits all depend on all bits of the given ones."""
    mixed: Digests = values + _U64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> _U64(30))) * _U64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> _U64(27))) * _U64(0x94D049BB133111EB)
    return mixed ^ (mixed >> _U64(31))


FOLDER = "__embedded"
SUFFIX = ".notes"
GIVEN = np.uint64(0)
"""Stands for the model of a vector that was not made here."""

_MANY_FILES = 16
_ATTEMPTS = 8
_COLUMNS = ("owner", "text", "model")
_SHAPE = pa.schema([(name, pa.uint64()) for name in _COLUMNS])


@dataclass(frozen=True, slots=True)
class VectorNotes:
    """Vectors, by digests of entity and numbers, with the text that each belongs to and who made it."""

    owners: Digests = field(repr=False)
    texts: Digests = field(repr=False)
    models: Digests = field(repr=False)

    def __len__(self) -> int:
        return len(self.owners)


class Provenance:
    """All notes about one property, to be asked for many rows at once."""

    def __init__(self, notes: VectorNotes) -> None:
        belonging = join_digests(notes.owners, notes.texts)
        self._owners = np.unique(notes.owners)
        self._belonging = np.unique(belonging)
        self._made = np.unique(join_digests(belonging, notes.models))

    def knows(self, owners: Digests) -> NDArray[np.bool_]:
        """Whether there is a note about each vector."""
        return _is_among(self._owners, owners)

    def belong(self, owners: Digests, texts: Digests) -> NDArray[np.bool_]:
        """Whether each vector is known to belong to the text."""
        return _is_among(self._belonging, join_digests(owners, texts))

    def made(self, owners: Digests, texts: Digests, model: np.uint64) -> NDArray[np.bool_]:
        """Whether each vector was made from the text by the model."""
        models = np.full(len(owners), model, np.uint64)
        return _is_among(self._made, join_digests(join_digests(owners, texts), models))


def _is_among(known: Digests, asked: Digests) -> NDArray[np.bool_]:
    if not len(known):
        return np.zeros(len(asked), np.bool_)
    places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.asarray(known[places] == asked, np.bool_)


def notes_path(type_name: str, property_name: str) -> str:
    """Where the notes about a property are, below the root."""
    return f"{FOLDER}/{fnv1a64(type_name)}-{fnv1a64(property_name)}"


def store_notes(root: Root, place: str, notes: VectorNotes) -> None:
    """Store notes; every reader sees them from now on."""
    if not len(notes):
        return
    columns = [pa.array(part) for part in (notes.owners, notes.texts, notes.models)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, _SHAPE) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_SHAPE))
    at = root.layout.root / place / f"{root.new_id()}{SUFFIX}"
    root.objects.write_bytes(at, sink.getvalue().to_pybytes())


def load_provenance(root: Root, place: str) -> Provenance:
    """What is known about a property at this moment."""
    return _load_provenance(_Kept(root, place, _list_names(root, place)))


def copy_notes(root: Root, place: str, other: str) -> None:
    """Let what is known about a property hold for one under another name, which has its vectors."""
    known = _read_notes(root, place, _list_names(root, place))
    store_notes(root, other, known)


def merge_files(root: Root, place: str) -> None:
    """Put the files together when they are many; what others add or gather meanwhile is not lost."""
    names = _list_names(root, place)
    if len(names) <= _MANY_FILES:
        return
    notes = _read_files(root, place, names)
    if notes is None:
        return  # another process is doing it
    whole = np.unique(np.stack([notes.owners, notes.texts, notes.models], axis=1), axis=0)
    store_notes(
        root, place, VectorNotes(*(np.ascontiguousarray(whole[:, column]) for column in range(len(_COLUMNS))))
    )
    for name in names:
        root.objects.delete(root.layout.root / place / name)


@dataclass(frozen=True, slots=True)
class _Kept:
    root: Root = field(compare=False)
    place: str = field(compare=False)
    names: tuple[str, ...]


@lru_cache(maxsize=1)
def _load_provenance(kept: _Kept) -> Provenance:
    """Names of files are never used twice, so they identify what is known."""
    return Provenance(_read_notes(kept.root, kept.place, kept.names))


def _read_notes(root: Root, place: str, names: tuple[str, ...]) -> VectorNotes:
    """The notes of these files, or of those that took their place."""
    for _ in range(_ATTEMPTS):
        notes = _read_files(root, place, names)
        if notes is not None:
            return notes
        names = _list_names(root, place)
    raise Unavailable(
        f"the notes about vectors in '{place}' are being put together all the time",
        remedy="run it again when no other run is at work",
    )


def _list_names(root: Root, place: str) -> tuple[str, ...]:
    found: list[Location] = root.objects.list_dir(root.layout.root / place)
    return tuple(sorted(at.name for at in found if at.name.endswith(SUFFIX)))


def _read_files(root: Root, place: str, names: tuple[str, ...]) -> VectorNotes | None:
    """The notes of these files; None when one of them is gone, because they were put together."""
    parts = [_SHAPE.empty_table()]
    for name in names:
        body = root.objects.read_bytes_if_exists(root.layout.root / place / name)
        if body is None:
            return None
        parts.append(pa.ipc.open_file(body).read_all())
    whole = pa.concat_tables(parts)
    return VectorNotes(*(whole.column(name).to_numpy() for name in _COLUMNS))
