"""The same rows in every format are the same rows in the graph."""

from __future__ import annotations

import gzip
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from tests.engine.load.sources.support import (
    KNOWS,
    PEOPLE,
    PERSON,
    Read,
    csv_text,
    knows_table,
    ndjson,
    person_table,
    read,
)

KNOWS_NAMES = ["id", "from", "to", "since", "weight"]


def _write(folder: Path, form: str) -> list[Path]:
    people, knows = folder / f"Person.{form}", folder / f"knows.{form}"
    for path, table, rows, names in (
        (people, person_table(), PEOPLE, PERSON.names),
        (knows, knows_table(), KNOWS, KNOWS_NAMES),
    ):
        match form:
            case "parquet":
                pq.write_table(table, path)
            case "arrow":
                with pa.ipc.new_file(path, table.schema) as file:
                    file.write_table(table)
            case "feather":
                with path.open("wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
                    stream.write_table(table)
            case "lance":
                lance.write_dataset(table, path)
            case "csv":
                path.write_bytes(csv_text(rows, names))
            case "csv.gz":
                path.write_bytes(gzip.compress(csv_text(rows, names, "\n")))
            case "csv.zst":
                path.write_bytes(pa.Codec("zstd").compress(csv_text(rows, names, "\n"), asbytes=True))
    return [people, knows]


def _without_new_ids(found: Read) -> dict[str, list[dict[str, object]]]:
    """Generated ids follow from where a row stands, which is not the same in another format."""
    return {
        key: [
            {**row, "id": None} if new else row for row, new in zip(rows, found.generated[key], strict=True)
        ]
        for key, rows in found.rows.items()
    }


@pytest.fixture
def as_records(tmp_path: Path) -> Read:
    path = tmp_path / "all.ndjson"
    path.write_bytes(ndjson())
    found = read(path)
    assert found.violations == []
    return found


@pytest.mark.parametrize("form", ["parquet", "arrow", "feather", "lance", "csv", "csv.gz", "csv.zst"])
def test_rows_do_not_depend_on_the_format(form: str, tmp_path: Path, as_records: Read) -> None:
    found = read(*_write(tmp_path, form))
    assert found.violations == []
    assert _without_new_ids(found) == _without_new_ids(as_records)
    assert found.generated == as_records.generated
    assert found.generated["edge:Knows"] == [True, True, False]


@pytest.mark.parametrize("packing", ["gz", "zst"])
def test_packed_records_are_the_same_with_the_same_ids(
    packing: str, tmp_path: Path, as_records: Read
) -> None:
    codec = pa.Codec({"gz": "gzip", "zst": "zstd"}[packing])
    half = ndjson()[:300], ndjson()[300:]
    path = tmp_path / f"all.jsonl.{packing}"
    # Packed in two parts, as appending to a packed file gives.
    path.write_bytes(b"".join(codec.compress(part, asbytes=True) for part in half))
    found = read(path)
    assert found.violations == []
    assert found.rows == as_records.rows


def test_an_export_of_parquet_with_blobs_as_bytes_is_read_back(tmp_path: Path, as_records: Read) -> None:
    photos = pa.array([bytes([0, 1, 2]), b"", None, None], pa.binary())
    table = person_table()
    table = table.set_column(table.schema.get_field_index("photo"), "photo", photos)
    pq.write_table(table, tmp_path / "Person.parquet")
    assert read(tmp_path / "Person.parquet").rows["node:Person"] == as_records.rows["node:Person"]
    lance.write_dataset(table, tmp_path / "Person.lance")
    assert read(tmp_path / "Person.lance").rows["node:Person"] == as_records.rows["node:Person"]


@pytest.mark.parametrize("form", ["parquet", "arrow", "lance"])
def test_generated_ids_follow_from_the_row_alone(form: str, tmp_path: Path) -> None:
    texts = [f"note {number}" for number in range(100)]
    whole, parts = tmp_path / "whole" / f"Note.{form}", tmp_path / "parts" / f"Note.{form}"
    table = pa.table({"text": texts})
    for path, size in ((whole, 100), (parts, 7)):
        path.parent.mkdir()
        match form:
            case "parquet":
                pq.write_table(table, path, row_group_size=size)
            case "arrow":
                with pa.ipc.new_file(path, table.schema) as file:
                    file.write_table(table, max_chunksize=size)
            case "lance":
                lance.write_dataset(table, path, max_rows_per_file=size)
    once, cut = read(whole), read(parts, split=1)
    assert once.rows == cut.rows
    assert len({row["id"] for row in cut.rows["node:Note"]}) == 100
    assert [row["text"] for row in cut.rows["node:Note"]] == texts
