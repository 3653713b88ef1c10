"""Inputs in a bucket: found like files, read in ranges, the same rows."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from omnigraph.engine.load.sources.mapping import build_mapping
from omnigraph.errors import BadRequest, InvalidName, StorageFailure
from omnigraph.storage import input_files as inputs
from omnigraph.storage.location import Location
from omnigraph.storage.stores import open_store
from tests.engine.load.sources.support import (
    KNOWS,
    csv_text,
    knows_table,
    ndjson,
    person_table,
    plan,
    read,
    read_all,
)

pytestmark = pytest.mark.s3


@pytest.fixture
def bucket(s3_root: Location) -> str:
    """A prefix in a bucket that holds files of several formats."""
    store = open_store(s3_root)
    parquet = pa.BufferOutputStream()
    pq.write_table(person_table(), parquet, row_group_size=2)
    arrow = pa.BufferOutputStream()
    with pa.ipc.new_file(arrow, knows_table().schema) as writer:
        writer.write_table(knows_table())
    bodies = {
        "in/all.ndjson": ndjson(),
        "in/more/all.jsonl.gz": pa.Codec("gzip").compress(ndjson(), asbytes=True),
        "tables/Person.parquet": parquet.getvalue().to_pybytes(),
        "tables/Knows/part=1%2F2/0.arrow": arrow.getvalue().to_pybytes(),
        "tables/_SUCCESS": b"",
        "sheets/Knows.csv": csv_text(KNOWS, ["id", "from", "to", "since", "weight"], "\n"),
        "other/readme.txt": b"hello",
    }
    for name, body in bodies.items():
        store.write_bytes(Location(f"{s3_root.uri}/{name}"), body)
    return s3_root.uri


def test_records_in_a_bucket_give_the_rows_and_ids_of_the_file(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "all.ndjson").write_bytes(ndjson())
    rows = read(tmp_path / "all.ndjson").rows
    assert read(f"{bucket}/in/all.ndjson").rows == rows
    assert read(f"{bucket}/in/more/all.jsonl.gz").rows == rows


def test_any_ranges_of_an_object_give_the_same_rows(bucket: str) -> None:
    once = read(f"{bucket}/in/all.ndjson")
    for split in (10, 100, 333):
        items = plan(f"{bucket}/in/all.ndjson", split=split)
        assert len(items) > 2
        assert read_all(items).rows == once.rows


def test_folders_and_patterns_of_a_bucket_are_by_path(bucket: str) -> None:
    def names(*given: str) -> list[str]:
        return [item.file.removeprefix(bucket) for item in plan(*(f"{bucket}/{name}" for name in given))]

    assert names("in") == ["/in/all.ndjson", "/in/more/all.jsonl.gz"]
    assert names("in/") == names("in")
    assert names("in/*.ndjson") == ["/in/all.ndjson"]
    assert names("**/*.jsonl.gz", "in/all.*") == ["/in/more/all.jsonl.gz", "/in/all.ndjson"]
    assert names("tables") == ["/tables/Knows/part=1%2F2/0.arrow", "/tables/Person.parquet"]


def test_columns_in_a_bucket_are_read_with_their_types(bucket: str) -> None:
    found = read(f"{bucket}/tables", split=1)
    assert found.violations == []
    people = [row["handle"] for row in found.rows["node:Person"]]
    assert people == ["ada", "bo", "cy é☃", "dee"]
    assert [row["src"] for row in found.rows["edge:Knows"]] == ["ada", "bo", "dee"]
    mapping = build_mapping({"inputs": [{"files": "sheets/*.csv", "multiline": False}]})
    sheet = read(f"{bucket}/sheets", mapping=mapping, split=20)
    assert [row["dst"] for row in sheet.rows["edge:Knows"]] == ["bo", "ada", "cy é☃"]


def test_a_lance_table_in_a_bucket_is_read(bucket: str) -> None:
    at = Location.parse(f"{bucket}/lake/Note.lance")
    lance.write_dataset(pa.table({"text": ["a", "b"]}), at.uri, storage_options=at.storage_options())
    for name in ("lake/Note.lance", "lake", "lake/*.lance"):
        assert [row["text"] for row in read(f"{bucket}/{name}").rows["node:Note"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("absent.ndjson", "there is no such file"),
        ("other", "has no files that end with"),
        ("other/*.txt", "has none of the endings"),
        ("in/*.csv", "no file matches"),
    ],
)
def test_what_is_not_there_is_reported(name: str, match: str, bucket: str) -> None:
    with pytest.raises(BadRequest, match=match):
        plan(f"{bucket}/{name}")


def test_an_object_that_went_away_is_a_typed_failure(bucket: str, s3_root: Location) -> None:
    items = plan(f"{bucket}/in/all.ndjson")
    open_store(s3_root).delete(s3_root / "in/all.ndjson")
    with pytest.raises(StorageFailure, match="does not exist"):
        read_all(items)


def test_a_bucket_that_does_not_exist_is_not_taken_for_an_absent_file(s3_root: Location) -> None:
    with pytest.raises(StorageFailure, match="no-such-bucket"):
        plan("s3://no-such-bucket/a.ndjson")
    with pytest.raises(InvalidName, match="no valid bucket name"):
        plan("s3:///a.ndjson")


def test_large_reads_are_made_of_several_requests(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "_REQUEST", 100)
    with inputs.open_input(f"{bucket}/in/all.ndjson") as stream:
        assert stream.read() == ndjson()
        assert stream.read(1) == b""
        stream.seek(-50, 2)
        assert stream.read(20) == ndjson()[-50:-30]
        stream.seek(-20, 1)
        assert stream.tell() == len(ndjson()) - 50
