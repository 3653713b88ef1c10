"""Rows that are written before they belong to a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.pieces import Pieces, read_piece, stage_pieces, write_pieces
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Tables

SCHEMA = pa.schema(
    [pa.field("id", pa.string(), nullable=False, metadata={"note": "kept"}), pa.field("src", pa.string())]
)
_ROWS = 5000


@pytest.mark.parametrize("width", [1, 40])
def test_how_ids_are_packed_shows_in_no_row_and_no_table(tmp_path: Path, width: int) -> None:
    ids = [f"{number:0{width}}" for number in range(_ROWS)]
    rows = pa.table([ids, [None, *ids[1:]]], schema=SCHEMA)
    tables, objects = Tables(), ObjectStore.at(Location(str(tmp_path)))
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
