from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.storage.durability import is_complete_bitmap
from tests import python_process

# The limit of file sizes stands for a disk that gets full: a write is cut short in the middle.
_CHILD = """
import json, os, resource, sys
import pyarrow as pa
from omnigraph.errors import StorageFailure
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_append, stage_overwrite
from omnigraph.storage.upsert import stage_upsert
from omnigraph.storage.tables import Tables
from omnigraph.storage.upkeep import commit_compaction, plan_compaction, rewrite_fragments

def stage_compaction(table, rows):
    more = commit_staged(stage_append(table, rows))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    return rewrite_fragments(plan_compaction(more))

kinds = {"append": stage_append, "upsert": stage_upsert, "overwrite": stage_overwrite}
stage = kinds.get(sys.argv[2], stage_compaction)
names = ["id", *(f"column{n}" for n in range(8))]
schema = pa.schema([(name, pa.string()) for name in names])
tables, hard = Tables(), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for limit in range(500, 4500, 100):
    at = Location.parse(sys.argv[1]) / str(limit)
    rows = pa.table({name: [os.urandom(40).hex()] for name in names}, schema=schema)
    table = tables.create(at, schema, primary_key="id", rows=rows)
    if stage is not stage_compaction:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        staged, ended = stage(table, rows.set_column(0, "id", [["new"]]).cast(table.schema)), "staged"
    except StorageFailure as failure:
        ended = f"{failure.kind}: {failure.message}"
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    if ended == "staged":
        commit_compaction(staged) if stage is stage_compaction else commit_staged(staged)
    ended = [ended, tables.tip(at).scan().num_rows]
    print(json.dumps(ended), flush=True)
"""


@pytest.mark.parametrize("kind", ["append", "upsert", "overwrite", "compaction"])
def test_a_file_that_lost_its_end_is_never_committed(tmp_path: Path, kind: str) -> None:
    done = python_process.run("-c", _CHILD, str(tmp_path), kind)
    assert done.returncode == 0, done.stderr
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    refused = [how for how, _ in ended if how != "staged"]
    assert all(how.startswith("Transient: ") for how in refused)
    assert any("bytes of a data file were stored" in how for how in refused), "else Lance tells it itself now"
    after = 1 if kind == "overwrite" else 2
    assert {rows for how, rows in ended if how == "staged"} == {after}
    assert {rows for how, rows in ended if how != "staged"} == {2 if kind == "compaction" else 1}


# --- files of deleted rows -------------------------------------------------------------------------

# Few deleted rows are stored as an array, many as a bitmap, of which some parts may be runs.
_DELETING = """
import resource, sys
from pathlib import Path
import pyarrow as pa
from omnigraph.errors import StorageFailure
from omnigraph.storage.location import Location
from omnigraph.storage.staging import stage_delete
from omnigraph.storage.tables import Tables

at, first, last, step = Location.parse(sys.argv[1]), *map(int, sys.argv[2:5])
schema = pa.schema([("id", pa.int64())])
rows = pa.table({"id": range(150_000)}, schema=schema)
table = Tables().create(at, schema, primary_key="id", rows=rows)
keys = pa.array(range(first, last, step))
stage_delete(table, keys)
[file] = (at.path / "_deletions").iterdir()
size, hard = file.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]
print(file, flush=True)
for limit in (size, size - 1, size // 2, 3):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        stage_delete(table, keys)
        print("staged", flush=True)
    except StorageFailure as failure:
        print(f"{failure.kind}: {failure.message}", flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
"""


@pytest.mark.parametrize(
    ("kind", "deleted"),
    [("array", (7, 8, 1)), ("bin", (0, 140_000, 2)), ("bin", (5, 149_000, 1)), ("bin", (0, 30_000, 3))],
)
def test_a_file_of_deleted_rows_that_lost_its_end_is_never_committed(
    tmp_path: Path, kind: str, deleted: tuple[int, int, int]
) -> None:
    done = python_process.run("-c", _DELETING, str(tmp_path / "t"), *map(str, deleted))
    assert done.returncode == 0, done.stderr
    file, whole, *cut = done.stdout.splitlines()
    assert file.endswith(".arrow" if kind == "array" else ".bin")
    assert whole == "staged"
    assert len(cut) == 3
    assert all(how.startswith("Transient: ") and "a file of deleted rows" in how for how in cut)
    if kind == "bin":
        body = Path(file).read_bytes()
        assert is_complete_bitmap(body)
        assert not any(is_complete_bitmap(body[:end]) for end in range(0, len(body), 7))
