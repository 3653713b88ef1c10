"""Rows replace those with their key, which keep their row ids; as a table, and as pieces that are written."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.storage import upsert as upserting
from omnigraph.storage.blobs import blob_field, to_writable
from omnigraph.storage.delta import Delta
from omnigraph.storage.forks import Forks
from omnigraph.storage.location import Location
from omnigraph.storage.pieces import Pieces, upsert_pieces, write_pieces
from omnigraph.storage.staging import Counts, commit_staged, stage_append, stage_delete
from omnigraph.storage.stores import open_store
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import compact
from omnigraph.storage.upsert import find_keys, find_rows, stage_upsert

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("age", pa.int64())])
ROWS = 300


def people(ids: range | list[str], age: int) -> pa.Table:
    names = [one if isinstance(one, str) else f"p{one}" for one in ids]
    return pa.table({"id": names, "age": [age] * len(names)}, schema=SCHEMA)


def create_table(at: Location) -> Table:
    """Three fragments, of which the first has lost a row."""
    table = Tables().create(at, SCHEMA, primary_key="id")
    for start in range(0, ROWS, ROWS // 3):
        table = commit_staged(stage_append(table, people(range(start, start + ROWS // 3), 0)))
    return commit_staged(stage_delete(table, pa.array(["p7"])))


def ages(table: Table) -> dict[str, int]:
    rows = table.scan(["id", "age"])
    assert len(set(rows["id"].to_pylist())) == rows.num_rows
    return dict(zip(rows["id"].to_pylist(), rows["age"].to_pylist(), strict=True))


def row_ids(table: Table) -> dict[str, int]:
    rows = table.native.scanner(columns=["id"], with_row_id=True).to_table()
    return dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))


def pieces_of(at: Location, *parts: pa.Table) -> Pieces:
    access = Tables().access
    written = [piece for part in parts for piece in write_pieces(access, at, part)]
    return Pieces(at, parts[0].schema, tuple(written))


@pytest.mark.parametrize("few", [True, False], ids=["by name", "by reading all keys"])
def test_replaced_rows_keep_their_row_ids_over_several_changes(
    shared_root: Location, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserting, "_FEW_KEYS", 1_000 if few else 0)
    table = begin = create_table(shared_root / "people")
    before = row_ids(table)
    for age, wanted in enumerate([["p8", "new'1", "p250"], ["p9", "p8", "p7"], ["new'1"]], start=1):
        staged = stage_upsert(table, people(wanted, age))
        known = row_ids(table)
        assert staged.counts == Counts(len(set(wanted) - set(known)), len(set(wanted) & set(known)), 0)
        table = commit_staged(staged)
        assert known.items() <= row_ids(table).items()
    expected = {f"p{number}": 0 for number in range(ROWS)} | {
        "p250": 1,
        "p8": 2,
        "p9": 2,
        "p7": 2,
        "new'1": 3,
    }
    assert ages(table) == ages(compact(table).table) == expected
    assert len(set(row_ids(table).values())) == len(expected)
    delta = Delta(begin, table)
    assert sorted(delta.inserted()["id"].to_pylist()) == ["new'1", "p7"]
    assert sorted(delta.updated()["id"].to_pylist()) == ["p250", "p8", "p9"]
    assert before.items() <= row_ids(table).items()


def test_a_fragment_whose_rows_are_all_replaced_is_gone(shared_root: Location) -> None:
    table = create_table(shared_root / "people")
    table = commit_staged(stage_upsert(table, people(range(100, 200), 1)))
    assert sorted({age for name, age in ages(table).items() if 100 <= int(name[1:]) < 200}) == [1]
    assert [fragment.physical_rows for fragment in table.native.get_fragments()] == [100, 100, 100]
    assert [fragment.num_deletions for fragment in table.native.get_fragments()] == [1, 0, 0]


def test_keys_are_found_where_they_are(shared_root: Location) -> None:
    table = create_table(shared_root / "people")
    met = find_keys(table, pa.chunked_array([["none", "p299"], ["p7", "p0"]]))
    assert met.places.tolist() == [1, 3]
    assert met.row_ids.tolist() == [row_ids(table)[name] for name in ("p299", "p0")]
    assert met.slice(1, 3).places.tolist() == [0]
    assert len(find_keys(table, pa.chunked_array([], pa.string()))) == 0


@pytest.mark.parametrize("few", [True, False], ids=["by number", "by listing all"])
def test_rows_are_replaced_by_their_row_ids(
    shared_root: Location, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upserting, "_FEW_KEYS", 1_000 if few else 0)
    table = commit_staged(stage_upsert(create_table(shared_root / "people"), people(["p8"], 1)))
    before = row_ids(table)
    wanted = ["p250", "new", "p8", "p0"]
    known = pa.array([before.get(name) for name in wanted], pa.uint64())
    with monkeypatch.context() as patch:
        patch.setattr(upserting, "find_keys", None)
        staged = stage_upsert(table, people(wanted, 2), replaced=known)
    assert staged.counts == Counts(1, 3, 0)
    after = commit_staged(staged)
    assert before.items() <= row_ids(after).items()
    assert ages(after) == ages(table) | dict.fromkeys(wanted, 2)


def test_a_row_id_that_is_not_stored_makes_all_keys_be_looked_up(shared_root: Location) -> None:
    table = create_table(shared_root / "people")
    gone = pa.array([7, row_ids(table)["p9"]], pa.uint64())
    assert find_rows(table, gone) is None
    after = commit_staged(stage_upsert(table, people(["p8", "p9"], 1), replaced=gone))
    assert row_ids(after) == row_ids(table)
    assert ages(after) == ages(table) | {"p8": 1, "p9": 1}


def test_rows_beyond_the_memory_of_lance_s_own_merge_replace_others(tmp_path: object) -> None:
    """One chunk of 60 MB: a merge by Lance counts it once for each batch that is cut from it."""
    at = Location.parse(f"{tmp_path}/docs")
    width, count = 768, 20_000
    place = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(width * count, np.float32)), width)
    names = pa.array([f"d{number}" for number in range(count)])
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("place", place.type)])
    rows = pa.table({"id": names, "place": place}, schema=schema)
    table = commit_staged(stage_append(Tables().create(at, schema, primary_key="id"), rows))
    staged = stage_upsert(table, rows)
    assert staged.counts == Counts(0, count, 0)
    assert commit_staged(staged).count() == count


# --- pieces ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("forked", [False, True], ids=["main", "branch"])
@pytest.mark.parametrize("together", [1, 1 << 20], ids=["a piece at a time", "all at once"])
def test_pieces_replace_and_add_and_only_mixed_ones_are_written_again(
    shared_root: Location, forked: bool, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.storage.pieces._KEYS_AT_ONCE", together)
    table, objects = create_table(shared_root / "people"), open_store(shared_root)
    if forked:
        table = Forks(Tables(), objects).create(table, "work")
    before, was = row_ids(table), ages(table)
    parts = [
        people(range(10, 20), 1),
        people([f"new{number}" for number in range(5)], 2),
        people(["p150", "other", "p7", "p3"], 3),
    ]
    pieces = pieces_of(shared_root / "staging", *parts)
    staged = upsert_pieces(objects, table, pieces)
    assert staged.counts == Counts(7, 12, 0)
    assert upsert_pieces(objects, table, pieces).counts == staged.counts, "they stay what they are"
    after = commit_staged(staged)
    expected = was | {
        name: age
        for part in parts
        for name, age in zip(part["id"].to_pylist(), part["age"].to_pylist(), strict=True)
    }
    assert ages(after) == expected
    assert before.items() <= row_ids(after).items()
    assert len(set(row_ids(after).values())) == len(expected)
    shared = {file.path for one in after.native.get_fragments() for file in one.metadata.files}
    kept = [name in shared for name in (_file(piece.fragment) for piece in pieces.pieces)]
    assert kept == [True, True, False]


def _file(fragment: str) -> str:
    return str(json.loads(fragment)["files"][0]["path"])


def test_blobs_in_pieces_come_along(shared_root: Location) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), blob_field("photo", nullable=True)])

    def photos(**given: bytes) -> pa.Table:
        plain = pa.table({"id": list(given), "photo": pa.array(list(given.values()), pa.large_binary())})
        return to_writable(plain, schema)

    table = Tables().create(shared_root / "people", schema, primary_key="id")
    table = commit_staged(stage_append(table, photos(ann=b"a", bob=b"b")))
    pieces = pieces_of(shared_root / "staging", photos(new=b"n", bob=b"B" * 100_000))
    after = commit_staged(upsert_pieces(open_store(shared_root), table, pieces))
    rows = after.native.scanner(blob_handling="all_binary").to_table()
    assert dict(zip(rows["id"].to_pylist(), rows["photo"].to_pylist(), strict=True)) == {
        "ann": b"a",
        "bob": b"B" * 100_000,
        "new": b"n",
    }
