"""Parts of a table that are written before anybody knows whether they will ever belong to it.

Pieces lie in a folder of their own, which whoever is done with them removes. To become rows of a table their
files get a second name among those of the table, which costs nothing in a folder and a copy inside the store
in a bucket; then one commit names them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance import LanceOperation as Op
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, write_fragments
from numpy.typing import NDArray

from omnigraph.errors import StorageFailure
from omnigraph.storage.blobs import as_stored, is_blob
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.session import Access
from omnigraph.storage.staging import (
    Counts,
    Staged,
    fenced_append,
    stage_append,
    stage_overwrite,
    unfenced,
)
from omnigraph.storage.tables import STORAGE_FORMAT, Table, fork_uri, options
from omnigraph.storage.upserting import (
    Met,
    find_keys,
    staged_upsert,
    taking_the_place,
    together,
    write_replacing,
)
from omnigraph.storage.whole import require_whole

ROWS_AT_ONCE = 65_536
_ROWS_PER_PIECE = 1 << 20
_SHARED_AT_ONCE = 8
_KEYS_AT_ONCE = 4 << 20
"""Keys that are looked up together, and so in memory together."""
_COMPRESSION = b"lance-encoding:compression"
_SHORT_TEXT = 10
"""Up to so many bytes on average, a text is not worth being compressed."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One fragment that belongs to no table yet; it travels between processes."""

    fragment: str
    """Lance's own description of it."""
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Matched:
    """The stored rows that rows of pieces replace, found out beforehand."""

    version: int
    """The version of the table that was looked at; for another one it means nothing."""
    rows: tuple[Met, ...] = field(repr=False)
    """For each piece; the rows that replace one are its first rows, in the order of these."""

    def first(self) -> Iterator[Met]:
        """The same by where the rows are by now."""
        for met in self.rows:
            yield Met(np.arange(len(met)), met.row_ids, met.addresses)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The rows of a table-to-be, or those to be added to one."""

    place: Location
    """The folder that holds them."""
    schema: pa.Schema = field(repr=False)
    pieces: tuple[Piece, ...] = field(repr=False)
    matched: Matched | None = field(default=None, repr=False)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def bytes(self) -> int:
        """What their files take."""
        return sum(piece.bytes for piece in self.pieces)


def write_pieces(
    access: Access, place: Location, rows: pa.Table, ids: Sequence[str] = ()
) -> tuple[Piece, ...]:
    """Write rows to a folder of pieces; columns of `ids` are packed in a way that takes half the time.

    By itself Lance looks for letters that often follow each other. In ids that helps less than what those of
    neighbours have in common, and in short ones nothing does.
    """
    rows = rows.cast(_packed(rows, ids)) if ids else rows
    try:
        written = _written(access, place, rows, "create")
    except StorageFailure as failure:
        if failure.kind != Trouble.EXISTS:
            raise
        # A folder that was read as a table is one. Nothing is overwritten: no version comes of it.
        written = _written(access, place, rows, "overwrite")
    return tuple(_piece(fragment) for fragment in written if fragment.physical_rows)


def _packed(rows: pa.Table, ids: Sequence[str]) -> pa.Schema:
    """The same columns; what is noted of them here is for the writer, and no part of any table."""
    schema = rows.schema
    for name in ids:
        place = schema.get_field_index(name)
        letters = pc.sum(pc.binary_length(rows.column(name))).as_py() or 0
        short = letters <= _SHORT_TEXT * rows.num_rows
        noted = {**(schema.field(place).metadata or {}), _COMPRESSION: b"none" if short else b"lz4"}
        schema = schema.set(place, schema.field(place).with_metadata(noted))
    return schema


def _written(
    access: Access, place: Location, rows: pa.Table, mode: Literal["create", "overwrite"]
) -> list[FragmentMetadata]:
    with access.call("write_pieces", place.uri):
        written: list[FragmentMetadata] = write_fragments(
            rows,
            place.uri,
            mode=mode,
            max_rows_per_file=_ROWS_PER_PIECE,
            enable_stable_row_ids=True,
            data_storage_version=STORAGE_FORMAT,
            storage_options=options(place),
        )
        require_whole("write_pieces", place, place.uri, Op.Append(written))
    return written


def _piece(fragment: FragmentMetadata) -> Piece:
    size = sum(file.file_size_bytes or 0 for file in fragment.files)
    return Piece(json.dumps(fragment.to_json()), fragment.physical_rows, size)


def read_piece(
    access: Access, place: Location, piece: Piece, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Some columns of a piece, in the order of its rows; none of them may be a Blob."""
    for file in _fragment(piece).files:
        with access.call("read_piece", place.uri):
            reader = LanceFileReader(
                f"{place.uri}/data/{file.path}", storage_options=options(place), columns=list(columns)
            )
            yield from reader.read_all(batch_size=ROWS_AT_ONCE).to_batches()


def _fragment(piece: Piece) -> FragmentMetadata:
    return FragmentMetadata.from_json(piece.fragment)


def piece_rows(access: Access, pieces: Pieces) -> pa.RecordBatchReader:
    """All rows of pieces, Blobs included; read on the way."""
    with access.call("open_pieces", pieces.place.uri):
        found = _gathered(pieces).scanner(batch_size=ROWS_AT_ONCE, blob_handling="all_binary").to_reader()
    return pa.RecordBatchReader.from_batches(pieces.schema, _stored_batches(found, pieces.schema))


def sorted_piece(access: Access, pieces: Pieces, order: NDArray[np.int64]) -> Piece:
    """The rows of one piece in another order, as a piece of their own."""
    rows = piece_rows(access, pieces).read_all().take(pa.array(order))
    (written,) = write_pieces(access, pieces.place, rows)
    return written


def gather_pieces(access: Access, pieces: Pieces) -> None:
    """Make a table of pieces where they are, for others to read."""
    with access.call("open_pieces", pieces.place.uri):
        _gathered(pieces)


def _gathered(pieces: Pieces) -> LanceDataset:
    return LanceDataset.commit(
        pieces.place.uri,
        Op.Overwrite(pieces.schema, [_fragment(piece) for piece in pieces.pieces]),
        storage_options=options(pieces.place),
        enable_stable_row_ids=True,
    )


def _stored_batches(found: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in found:
        yield from as_stored(pa.Table.from_batches([batch]), schema).to_batches()


# --- into a table --------------------------------------------------------------------------------


def stage_pieces(objects: ObjectStore, table: Table, pieces: Pieces, *, replace: bool) -> Staged:
    """Pieces to be added to a table, or to be all there is in it.

    The pieces stay what they are: after a commit that was faster they are checked and staged once more.
    """
    fragments = [_fragment(piece) for piece in pieces.pieces]
    if not _has_the_fields_of(table, fragments):
        # A table whose columns came one after another numbers them otherwise: write the rows once more.
        whole = piece_rows(table.access, pieces)
        return stage_overwrite(table, whole) if replace else stage_append(table, whole)
    _share(objects, table, pieces, fragments)
    if not replace:
        return Staged(table, fenced_append(table, fragments), Counts(inserted=pieces.rows))
    operation = Op.Overwrite(table.native.lance_schema, fragments)
    return Staged(table, unfenced(table, operation), Counts(inserted=pieces.rows, deleted=table.count()))


def upsert_pieces(objects: ObjectStore, table: Table, pieces: Pieces, key: str = "id") -> Staged:
    """Pieces whose rows are added, or replace those with their key; no key is in them twice.

    A piece of which all rows replace one, or none, stays what it is; others are written once more, those that
    replace one first. Memory is that of the keys of some pieces, and of what is written at a time.
    """
    stays = _has_the_fields_of(table, [_fragment(piece) for piece in pieces.pieces])
    known = pieces.matched if pieces.matched and pieces.matched.version == table.version else None
    found = list(_met_by_pieces(table, pieces, key) if known is None else known.first())
    shared, written = [], []
    with table.access.call("stage_upsert", table.uri):
        scattered = None
        for number, (piece, met) in enumerate(zip(pieces.pieces, found, strict=True)):
            if stays and (known is not None or len(met) in (0, piece.rows)):
                shared += taking_the_place([_fragment(piece)], met)
                continue
            scattered = scattered or _gathered(pieces)
            written += write_replacing(table, _met_first(scattered, number, pieces.schema, met), met)
    _share(objects, table, pieces, shared)
    with table.access.call("stage_upsert", table.uri):
        return staged_upsert(table, [*shared, *written], together(found), pieces.rows)


def _met_by_pieces(table: Table, pieces: Pieces, key: str) -> Iterator[Met]:
    for group in _groups(pieces.pieces):
        keys = [
            pa.chunked_array(
                [batch.column(0) for batch in read_piece(table.access, pieces.place, piece, [key])],
                pieces.schema.field(key).type,
            )
            for piece in group
        ]
        met = find_keys(table, pa.chunked_array([part for one in keys for part in one.chunks]), key)
        start = 0
        for one in keys:
            yield met.between(start, start + len(one))
            start += len(one)


def _groups(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    for piece in pieces:
        if group and sum(one.rows for one in group) + piece.rows > _KEYS_AT_ONCE:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _met_first(pieces: LanceDataset, number: int, schema: pa.Schema, met: Met) -> pa.RecordBatchReader:
    """The rows of a piece, those that replace one before the others; each part in its order."""
    fragment = pieces.get_fragments()[number]
    replaces = np.zeros(fragment.count_rows(), dtype=bool)
    replaces[met.places] = True

    def batches() -> Iterator[pa.RecordBatch]:
        for chosen in (replaces, ~replaces):
            at = 0
            for batch in fragment.scanner(batch_size=ROWS_AT_ONCE, blob_handling="all_binary").to_batches():
                part = batch.filter(pa.array(chosen[at : at + len(batch)]))
                at += len(batch)
                yield from as_stored(pa.Table.from_batches([part]), schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _has_the_fields_of(table: Table, fragments: Sequence[FragmentMetadata]) -> bool:
    stored = [field.id() for field in table.native.lance_schema.fields()]
    return all(list(file.fields) == stored for fragment in fragments for file in fragment.files)


def _share(objects: ObjectStore, table: Table, pieces: Pieces, fragments: Sequence[FragmentMetadata]) -> None:
    source, target = pieces.place / "data", Location(fork_uri(table.location, table.branch)) / "data"
    with_blobs = any(is_blob(column) for column in pieces.schema)

    def one(name: str) -> None:
        if with_blobs:
            stem = name.removesuffix(".lance")
            for blob in objects.list_dir(source / stem):
                objects.share(blob, target / f"{stem}/{blob.name}")
        # Last, so that a file that is there has all its Blobs with it.
        objects.share(source / name, target / name)

    names = [file.path for fragment in fragments for file in fragment.files]
    with ThreadPoolExecutor(_SHARED_AT_ONCE) as pool:
        list(pool.map(one, names))
