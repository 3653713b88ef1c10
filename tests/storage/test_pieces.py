"""Rows that are written before they belong to a table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.storage.blobs import blob_field
from omnigraph.storage.location import Location
from omnigraph.storage.pieces import (
    Piece,
    Pieces,
    read_piece,
    read_piece_rows,
    sort_piece,
    stage_pieces,
    upsert_pieces,
    write_pieces,
)
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.stores import open_store
from omnigraph.storage.tables import Tables
from tests.python_process import PIPE, Python

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False, metadata={"note": "kept"}), pa.field("src", pa.string())]
)
_ROWS = 5000


@pytest.mark.parametrize("width", [1, 40])
def test_how_ids_are_packed_shows_in_no_row_and_no_table(tmp_path: Path, width: int) -> None:
    ids = [f"{number:0{width}}" for number in range(_ROWS)]
    rows = pa.table([ids, [None, *ids[1:]]], schema=SCHEMA)
    tables, objects = Tables(), open_store(Location(str(tmp_path)))
    place = Location(f"{tmp_path}/waiting")
    (written,) = write_pieces(tables.access, place, rows, ["id", "src"])
    found = pa.Table.from_batches(read_piece(tables.access, place, written, SCHEMA.names))
    assert found.equals(rows)
    table = tables.create(Location(f"{tmp_path}/table"), SCHEMA, primary_key="id")
    pieces = Pieces(place, SCHEMA, (written,))
    landed = commit_staged(stage_pieces(objects, table, pieces, replace=False))
    assert landed.scan(SCHEMA.names).equals(rows)
    assert landed.schema.equals(table.schema, check_metadata=True)
    (as_they_come,) = write_pieces(tables.access, place, rows)
    assert written.bytes != as_they_come.bytes


WITH_BLOBS = pa.schema([*SCHEMA, blob_field("photo", nullable=True)])


def written_pieces(root: Location, count: int) -> Pieces:
    """Pieces of a few rows each, in one folder."""
    access, place = Tables().access, root / "waiting"
    pieces: list[Piece] = []
    for number in range(count):
        ids = [f"{number}-{row}" for row in range(3)]
        photos = lance.blob_array([b"", None, b"x" * (number * 40_000)])
        pieces += write_pieces(access, place, pa.table([ids, ids, photos], schema=WITH_BLOBS))
    return Pieces(place, WITH_BLOBS, tuple(pieces))


def stored_files(root: Location) -> list[str]:
    """Every file below a root."""
    objects, found, folders = open_store(root), list[str](), [root]
    while folders:
        folder = folders.pop()
        found += [file.uri for file in objects.list_dir(folder)]
        folders += [folder / name for name in objects.list_folders(folder)]
    return sorted(found)


def test_reading_pieces_leaves_no_new_file(shared_root: Location) -> None:
    pieces = written_pieces(shared_root, 4)
    access, before = Tables().access, stored_files(shared_root)
    assert before
    for _ in range(2):
        found = read_piece_rows(access, pieces).read_all()
        assert found.column("id").to_pylist() == [f"{one}-{row}" for one in range(4) for row in range(3)]
        photos = [chunk.storage.field(0) for chunk in found.column("photo").chunks]
        lengths = pc.binary_length(pa.chunked_array(photos)).to_pylist()
        assert lengths == [0, None, 0, 0, None, 40_000, 0, None, 80_000, 0, None, 120_000]
    assert list(read_piece(access, pieces.place, pieces.pieces[0], ["id"]))
    assert stored_files(shared_root) == before
    # A piece in another order is one file more, and still no table.
    sort_piece(access, replace(pieces, pieces=pieces.pieces[:1]), np.array([2, 0, 1]))
    assert [
        name for name in stored_files(shared_root) if name not in before and "/waiting/data/" not in name
    ] == []


def test_rows_are_added_and_replaced_without_a_commit_among_the_pieces(shared_root: Location) -> None:
    pieces = written_pieces(shared_root, 3)
    tables, objects = Tables(), open_store(shared_root)
    table = tables.create(shared_root / "table", WITH_BLOBS, primary_key="id")
    table = commit_staged(
        stage_pieces(objects, table, replace(pieces, pieces=pieces.pieces[:1]), replace=False)
    )
    waiting = [name for name in stored_files(shared_root) if "/waiting/" in name]
    # The first piece replaces all it has, and the last, written for it, replaces its second row only.
    mixed = pa.table([["n", "0-1"], ["n", "m"], lance.blob_array([b"n", b"m"])], schema=WITH_BLOBS)
    more = write_pieces(tables.access, pieces.place, mixed)
    landed = commit_staged(upsert_pieces(objects, table, replace(pieces, pieces=(*pieces.pieces[1:], *more))))
    assert sorted(landed.scan(["id"])["id"].to_pylist()) == sorted(
        ["n", *(f"{one}-{row}" for one in range(3) for row in range(3))]
    )
    assert {
        name for name in stored_files(shared_root) if "/waiting/" in name and "/data/" not in name
    } == set()
    assert set(waiting) <= set(stored_files(shared_root))


READER = """
import json, sys
from omnigraph.storage.location import Location
from omnigraph.storage.pieces import Piece, Pieces, read_piece_rows
from omnigraph.storage.tables import Tables
from tests.storage.test_pieces import WITH_BLOBS

place, *pieces = json.loads(sys.stdin.readline())
access = Tables().access
print("ready", flush=True)
sys.stdin.readline()
for _ in range(10):
    pieces_of = Pieces(Location(place), WITH_BLOBS, tuple(Piece(*one) for one in pieces))
    assert read_piece_rows(access, pieces_of).read_all().num_rows == 12
"""


def test_several_processes_read_the_same_pieces_at_once(shared_root: Location) -> None:
    pieces = written_pieces(shared_root, 4)
    before = stored_files(shared_root)
    order = json.dumps([pieces.place.uri, *([one.fragment, one.rows, one.bytes] for one in pieces.pieces)])
    readers = [Python("-c", READER, stdin=PIPE, stdout=PIPE, stderr=PIPE) for _ in range(4)]
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write(order + "\n")
        reader.stdin.flush()
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    for reader in readers:
        assert reader.stdin is not None
        reader.stdin.write("\n")
        reader.stdin.flush()
    ended = [(*reader.communicate(), reader.returncode) for reader in readers]
    assert ended == [("", "", 0)] * len(readers)
    assert stored_files(shared_root) == before
