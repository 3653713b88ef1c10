"""Which text each vector belongs to, as far as it was made here or seen before.

A vector out of date looks like any other, so every vector that is made is noted with its text, before it can
be seen anywhere. A note is true for ever and for every branch: it says that this vector of this entity
belongs to that text, and nothing about what is stored where. So notes need no commit, survive merges,
compactions and cleanups, and a note whose vector never landed does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.embedding.digests import Digests, join_digests
from omnigraph.engine.graph.layout import fnv1a64
from omnigraph.engine.graph.root import Root
from omnigraph.errors import Unavailable
from omnigraph.storage.location import Location

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
        return _among(self._owners, owners)

    def belong(self, owners: Digests, texts: Digests) -> NDArray[np.bool_]:
        """Whether each vector is known to belong to the text."""
        return _among(self._belonging, join_digests(owners, texts))

    def made(self, owners: Digests, texts: Digests, model: np.uint64) -> NDArray[np.bool_]:
        """Whether each vector was made from the text by the model."""
        models = np.full(len(owners), model, np.uint64)
        return _among(self._made, join_digests(join_digests(owners, texts), models))


def _among(known: Digests, asked: Digests) -> NDArray[np.bool_]:
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
    return _provenance(_Kept(root, place, _names(root, place)))


def copy_notes(root: Root, place: str, other: str) -> None:
    """Let what is known about a property hold for one under another name, which has its vectors."""
    known = _known(root, place, _names(root, place))
    store_notes(root, other, known)


def merge_files(root: Root, place: str) -> None:
    """Put the files together when they are many; what others add or gather meanwhile is not lost."""
    names = _names(root, place)
    if len(names) <= _MANY_FILES:
        return
    notes = _read(root, place, names)
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
def _provenance(kept: _Kept) -> Provenance:
    """Names of files are never used twice, so they identify what is known."""
    return Provenance(_known(kept.root, kept.place, kept.names))


def _known(root: Root, place: str, names: tuple[str, ...]) -> VectorNotes:
    """The notes of these files, or of those that took their place."""
    for _ in range(_ATTEMPTS):
        notes = _read(root, place, names)
        if notes is not None:
            return notes
        names = _names(root, place)
    raise Unavailable(
        f"the notes about vectors in '{place}' are being put together all the time",
        remedy="run it again when no other run is at work",
    )


def _names(root: Root, place: str) -> tuple[str, ...]:
    found: list[Location] = root.objects.list_dir(root.layout.root / place)
    return tuple(sorted(at.name for at in found if at.name.endswith(SUFFIX)))


def _read(root: Root, place: str, names: tuple[str, ...]) -> VectorNotes | None:
    """The notes of these files; None when one of them is gone, because they were put together."""
    parts = [_SHAPE.empty_table()]
    for name in names:
        body = root.objects.read_bytes_if_exists(root.layout.root / place / name)
        if body is None:
            return None
        parts.append(pa.ipc.open_file(body).read_all())
    whole = pa.concat_tables(parts)
    return VectorNotes(*(whole.column(name).to_numpy() for name in _COLUMNS))
