"""Pieces: data files that are written before it is decided whether they become part of a table.

Pieces are in a folder of their own, which their user removes. To become rows of a table their files get a
second name among those of the table: a hard link in a folder, a copy inside the store in a bucket. Then one
commit names them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance import LanceOperation as Op
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, write_fragments
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.base_paths import fork_uri
from omnigraph.storage.blobs import is_blob, to_writable
from omnigraph.storage.concurrency import run_per_file
from omnigraph.storage.durability import require_complete_files
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.session import Access
from omnigraph.storage.staging import (
    Counts,
    Staged,
    build_fenced_append,
    build_transaction,
    stage_append,
    stage_overwrite,
)
from omnigraph.storage.tables import STORAGE_FORMAT, Table, storage_options
from omnigraph.storage.upsert import (
    MatchedRows,
    assign_row_ids,
    build_upsert,
    concat_matches,
    find_keys,
    write_replacements,
)
from omnigraph.storage.version_files import data_file_name

ROWS_AT_ONCE = 65_536
_ROWS_PER_PIECE = 1 << 20
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
class PieceMatches:
    """The stored rows that rows of pieces replace, looked up beforehand."""

    version: int
    """The version of the table that was looked at; for another one it means nothing."""
    rows: tuple[MatchedRows, ...] = field(repr=False)
    """For each piece; the rows that replace one are its first rows, in the order of these."""

    def first(self) -> Iterator[MatchedRows]:
        """Yield the matches of each piece, whose matched rows come first by now."""
        for met in self.rows:
            yield MatchedRows(np.arange(len(met)), met.row_ids, met.addresses)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The rows of a new table, or those to be added to one."""

    place: Location
    """The folder that holds them."""
    schema: pa.Schema = field(repr=False)
    pieces: tuple[Piece, ...] = field(repr=False)
    matched: PieceMatches | None = field(default=None, repr=False)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def bytes(self) -> int:
        """What their files take."""
        return sum(piece.bytes for piece in self.pieces)


def write_pieces(
    access: Access, place: Location, rows: pa.Table | pa.RecordBatchReader, ids: Sequence[str] = ()
) -> tuple[Piece, ...]:
    """Write rows to a folder of pieces; columns of `ids` are packed in a way that takes half the time.

    By itself Lance looks for letters that often follow each other. In ids that helps less than what those of
    neighbours have in common, and in short ones nothing does.
    """
    if ids and isinstance(rows, pa.Table):
        rows = rows.cast(_with_id_compression(rows, ids))
    with access.call("write_pieces", place.uri):
        written: list[FragmentMetadata] = write_fragments(
            rows,
            place.uri,
            mode="create",
            max_rows_per_file=_ROWS_PER_PIECE,
            enable_stable_row_ids=True,
            data_storage_version=STORAGE_FORMAT,
            storage_options=storage_options(place),
        )
        require_complete_files("write_pieces", place, place.uri, Op.Append(written))
    return tuple(_to_piece(fragment) for fragment in written if fragment.physical_rows)


def _with_id_compression(rows: pa.Table, ids: Sequence[str]) -> pa.Schema:
    """The same columns; what is noted of them here is for the writer, and no part of any table."""
    schema = rows.schema
    for name in ids:
        place = schema.get_field_index(name)
        letters = pc.sum(pc.binary_length(rows.column(name))).as_py() or 0
        short = letters <= _SHORT_TEXT * rows.num_rows
        noted = {**(schema.field(place).metadata or {}), _COMPRESSION: b"none" if short else b"lz4"}
        schema = schema.set(place, schema.field(place).with_metadata(noted))
    return schema


def _to_piece(fragment: FragmentMetadata) -> Piece:
    size = sum(file.file_size_bytes or 0 for file in fragment.files)
    return Piece(json.dumps(fragment.to_json()), fragment.physical_rows, size)


def read_piece(
    access: Access, place: Location, piece: Piece, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Some columns of a piece, in the order of its rows; none of them may be a Blob."""
    for file in _to_fragment(piece).files:
        with access.call("read_piece", place.uri):
            reader = LanceFileReader(
                f"{place.uri}/data/{data_file_name(file)}",
                storage_options=storage_options(place),
                columns=list(columns),
            )
            yield from reader.read_all(batch_size=ROWS_AT_ONCE).to_batches()


def _to_fragment(piece: Piece) -> FragmentMetadata:
    return FragmentMetadata.from_json(piece.fragment)


def read_piece_rows(access: Access, pieces: Pieces) -> pa.RecordBatchReader:
    """All rows of pieces, Blobs included; read on the way."""
    with access.call("open_pieces", pieces.place.uri):
        found = _open_view(pieces).scanner(batch_size=ROWS_AT_ONCE, blob_handling="all_binary").to_reader()
    return pa.RecordBatchReader.from_batches(pieces.schema, _stored_batches(found, pieces.schema))


def sort_piece(access: Access, pieces: Pieces, order: NDArray[np.int64]) -> Piece:
    """The rows of one piece in another order, as a piece of their own."""
    rows = read_piece_rows(access, pieces).read_all().take(pa.array(order))
    (written,) = write_pieces(access, pieces.place, rows)
    return written


def gather_pieces(access: Access, pieces: Pieces) -> None:
    """Commit pieces as a table where they are, for others to read; only their one owner may do this."""
    with access.call("open_pieces", pieces.place.uri):
        LanceDataset.commit(
            pieces.place.uri,
            _build_overwrite(pieces),
            storage_options=storage_options(pieces.place),
            enable_stable_row_ids=True,
        )


def _open_view(pieces: Pieces) -> LanceDataset:
    """Open pieces as a dataset for this process alone; nothing is written to their folder.

    Many tasks read pieces of one folder at the same time and would all compete for a commit there. So the
    manifest is made in memory, and opened as that of a dataset whose data files are in the folder.
    """
    described = LanceDataset.commit(
        f"memory://pieces-{uuid.uuid4().hex}", _build_overwrite(pieces), enable_stable_row_ids=True
    )
    manifest = described._ds.serialized_manifest()  # noqa: SLF001 - what a pickled dataset takes along
    return LanceDataset(
        pieces.place.uri,
        version=described.version,
        serialized_manifest=manifest,
        storage_options=storage_options(pieces.place),
    )


def _build_overwrite(pieces: Pieces) -> Op.Overwrite:
    return Op.Overwrite(pieces.schema, [_to_fragment(piece) for piece in pieces.pieces])


def _stored_batches(found: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in found:
        yield from to_writable(pa.Table.from_batches([batch]), schema).to_batches()


# --- into a table --------------------------------------------------------------------------------


def stage_pieces(objects: ObjectStore, table: Table, pieces: Pieces, *, replace: bool) -> Staged:
    """Stage pieces to be added to a table, or to replace all its rows.

    The pieces stay unchanged: after a faster commit of another writer they are checked and staged again.
    """
    fragments = [_to_fragment(piece) for piece in pieces.pieces]
    if not _has_same_fields(table, pieces.schema, fragments):
        # A table that got its columns one by one numbers them differently: rewrite the rows.
        whole = read_piece_rows(table.access, pieces)
        return stage_overwrite(table, whole) if replace else stage_append(table, whole)
    _link_files(objects, table, pieces, fragments)
    if not replace:
        return Staged(table, build_fenced_append(table, fragments), Counts(inserted=pieces.rows))
    operation = Op.Overwrite(table.native.lance_schema, fragments)
    return Staged(
        table, build_transaction(table, operation), Counts(inserted=pieces.rows, deleted=table.count())
    )


def upsert_pieces(objects: ObjectStore, table: Table, pieces: Pieces, key: str = "id") -> Staged:
    """Stage pieces whose rows are added, or replace those with their key; no key is in them twice.

    A piece of which all rows, or none, replace a stored row is used as it is; others are rewritten with the
    replacing rows first. Memory holds the keys of some pieces, and the rows being written.
    """
    stays = _has_same_fields(table, pieces.schema, [_to_fragment(piece) for piece in pieces.pieces])
    known = pieces.matched if pieces.matched and pieces.matched.version == table.version else None
    found = list(_match_pieces(table, pieces, key) if known is None else known.first())
    shared, written = [], []
    with table.access.call("stage_upsert", table.uri):
        scattered = None
        for number, (piece, met) in enumerate(zip(pieces.pieces, found, strict=True)):
            if stays and (known is not None or len(met) in (0, piece.rows)):
                shared += assign_row_ids([_to_fragment(piece)], met)
                continue
            scattered = scattered or _open_view(pieces)
            written += write_replacements(
                table, _order_matches_first(scattered, number, pieces.schema, met), met
            )
    _link_files(objects, table, pieces, shared)
    with table.access.call("stage_upsert", table.uri):
        return build_upsert(table, [*shared, *written], concat_matches(found), pieces.rows)


def _match_pieces(table: Table, pieces: Pieces, key: str) -> Iterator[MatchedRows]:
    for group in _group_by_keys(pieces.pieces):
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
            yield met.slice(start, start + len(one))
            start += len(one)


def _group_by_keys(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    for piece in pieces:
        if group and sum(one.rows for one in group) + piece.rows > _KEYS_AT_ONCE:
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _order_matches_first(
    pieces: LanceDataset, number: int, schema: pa.Schema, met: MatchedRows
) -> pa.RecordBatchReader:
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
                yield from to_writable(pa.Table.from_batches([part]), schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def _has_same_fields(table: Table, schema: pa.Schema, fragments: Sequence[FragmentMetadata]) -> bool:
    """Whether files can belong to a table as they are: the same columns in the same order and types.

    Field numbers alone prove nothing: both count from 0, and a table may have its columns in another order.
    """
    if [(one.name, one.type) for one in schema] != [(one.name, one.type) for one in table.native.schema]:
        return False
    stored = [field.id() for field in table.native.lance_schema.fields()]
    return all(list(file.fields) == stored for fragment in fragments for file in fragment.files)


def _link_files(
    objects: ObjectStore, table: Table, pieces: Pieces, fragments: Sequence[FragmentMetadata]
) -> None:
    source, target = pieces.place / "data", Location(fork_uri(table.location, table.branch)) / "data"
    with_blobs = any(is_blob(column) for column in pieces.schema)

    def one(name: str) -> None:
        if with_blobs:
            stem = name.removesuffix(".lance")
            for blob in objects.list_dir(source / stem):
                objects.share(blob, target / f"{stem}/{blob.name}")
        # Last, so that a file that is there has all its Blobs with it.
        objects.share(source / name, target / name)

    names = [data_file_name(file) for fragment in fragments for file in fragment.files]
    run_per_file(one, names)
