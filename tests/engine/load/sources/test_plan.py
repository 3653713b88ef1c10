"""Which files a load reads, in which order, as which type, and cut into which items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from omnigraph.engine.load.sources.input_files import pattern
from omnigraph.engine.load.sources.item import Format, Item, format_of, strip_extension
from omnigraph.engine.load.sources.mapping import build_mapping
from omnigraph.engine.load.sources.plan import pack_files
from omnigraph.errors import BadRequest, StorageFailure
from tests.engine.load.sources.support import knows_table, person_table, plan, read, read_all

NOTE = b'{"type":"Note","data":{"text":"x"}}\n'


def _files(items: Sequence[Item], root: Path) -> list[str]:
    return [str(Path(item.file).relative_to(root)) for item in items]


def test_files_come_in_the_order_given_and_those_of_folders_by_path(tmp_path: Path) -> None:
    for name in (
        "b/2.ndjson",
        "b/1.jsonl",
        "b/sub/0.ndjson.gz",
        "a.ndjson",
        "b/_hidden/3.ndjson",
        "b/.4.ndjson",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pa.Codec("gzip").compress(NOTE, asbytes=True) if name.endswith("gz") else NOTE)
    (tmp_path / "b" / "_SUCCESS").write_bytes(b"")
    (tmp_path / "b" / "README.md").write_text("hello")
    items = plan(tmp_path / "b", tmp_path / "a.ndjson", tmp_path / "b" / "*.ndjson")
    assert _files(items, tmp_path) == [
        "b/1.jsonl",
        "b/2.ndjson",
        "b/sub/0.ndjson.gz",
        "a.ndjson",
        "b/2.ndjson",
    ]
    assert [item.file_number for item in items] == [0, 1, 2, 3, 4]
    assert [item.number for item in items] == [0, 1, 2, 3, 4]
    assert len(read(tmp_path / "**" / "*.ndjson").rows["node:Note"]) == 3


def test_a_file_is_named_as_the_user_does_and_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "n.ndjson").write_bytes(NOTE)
    monkeypatch.chdir(tmp_path)
    (item,) = plan("data")
    assert (item.file, item.at) == ("data/n.ndjson", str(tmp_path / "data" / "n.ndjson"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.ndjson", "cannot read '{}': there is no such file"),
        ("*.parquet", "no file matches '{}'"),
        ("empty", "folder '{}' has no files that end with"),
        ("a.*", "'{}' has none of the endings a load knows"),
        ("a.lance", "'{}' is a file; a Lance table is a folder"),
    ],
)
def test_what_cannot_be_read_is_reported_before_anything_is(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for each in ("a.txt", "a.lance", "empty/note.md"):
        (tmp_path / each).write_text("x")
    if name == "a.*":
        (tmp_path / "a.lance").unlink()
    named = tmp_path / ("a.txt" if name == "a.*" else name)
    with pytest.raises(BadRequest) as refused:
        plan(tmp_path / name)
    assert refused.value.message.startswith(message.format(named))
    assert refused.value.remedy


def test_a_link_inside_a_folder_never_leads_in_circles(tmp_path: Path) -> None:
    (tmp_path / "n.ndjson").write_bytes(NOTE)
    (tmp_path / "again").symlink_to(tmp_path)
    assert len(plan(tmp_path)) == 1


def test_no_files_at_all_is_an_error() -> None:
    with pytest.raises(BadRequest, match="a load needs at least one file"):
        plan()


@pytest.mark.parametrize(
    "name",
    [
        "Person.parquet",
        "Person/part-0.parquet",
        "in/Person/2024/part-0.parquet",
        "in/nodes/Person.parquet",
        "in/person/Person.parquet",
    ],
)
def test_the_type_of_a_file_follows_from_its_name_or_its_folder(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(person_table(), path)
    (item,) = plan(tmp_path / Path(name).parts[0])
    assert item.mapping is not None
    assert item.mapping.key == "node:Person"


def test_upper_and_lower_case_do_not_matter_for_edges_and_do_for_nodes(tmp_path: Path) -> None:
    for name in ("KNOWS", "person"):
        (tmp_path / name).mkdir()
        pq.write_table(knows_table(), tmp_path / name / "0.parquet")
    (item,) = plan(tmp_path / "KNOWS")
    assert item.mapping is not None
    assert item.mapping.key == "edge:Knows"
    with pytest.raises(BadRequest, match=r"'.*person/0\.parquet' does not tell which type its rows have"):
        plan(tmp_path / "person")


def test_a_file_named_alone_does_not_get_its_type_from_folders_further_up(tmp_path: Path) -> None:
    path = tmp_path / "Person" / "2024" / "0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(person_table(), path)
    with pytest.raises(BadRequest, match="does not tell which type"):
        plan(path)


def test_folders_of_an_export_tell_types_of_one_name_apart(tmp_path: Path) -> None:
    schema = "node Likes { n: I32? }\nedge Likes: Likes -> Likes { n: I32? }"
    for kind in ("nodes", "edges"):
        (tmp_path / kind).mkdir()
        pq.write_table(pa.table({"id": ["a"], "from": ["a"], "to": ["a"]}), tmp_path / kind / "Likes.parquet")
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "nodes" / "Likes.parquet")
    keys = [item.mapping and item.mapping.key for item in plan(tmp_path, schema=schema)]
    assert keys == ["edge:Likes", "node:Likes"]
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "Likes.parquet")
    with pytest.raises(BadRequest, match="does not tell which type"):
        plan(tmp_path / "Likes.parquet", schema=schema)


def test_row_groups_are_put_together_up_to_the_size_of_an_item(tmp_path: Path) -> None:
    path = tmp_path / "Note.parquet"
    table = pa.table({"text": ["x" * 100] * 1000})
    pq.write_table(table, path, row_group_size=100, use_dictionary=False, compression="none")
    items = plan(path, split=33_000)
    assert [(item.begin, item.end, item.first_row, sum(item.rows)) for item in items] == [
        (0, 3, 0, 300),
        (3, 6, 300, 300),
        (6, 9, 600, 300),
        (9, 10, 900, 100),
    ]
    assert len(read(path, split=33_000).rows["node:Note"]) == 1000


def test_rows_that_take_little_room_in_a_file_are_not_all_put_into_one_item(tmp_path: Path) -> None:
    path = tmp_path / "Note.parquet"
    pq.write_table(pa.table({"text": ["x"] * 1000}), path, row_group_size=100)
    assert path.stat().st_size < 6_400
    items = plan(path, split=6_400)
    assert len(items) == 10
    assert sum(item.size for item in items) < path.stat().st_size


def test_a_lance_table_is_read_at_the_version_it_had_when_the_load_began(tmp_path: Path) -> None:
    at = tmp_path / "Note.lance"
    lance.write_dataset(pa.table({"text": ["a", "b", "c"]}), at, max_rows_per_file=2)
    dataset = lance.dataset(at)
    dataset.delete("text = 'b'")
    items = plan(at, split=1)
    lance.write_dataset(pa.table({"text": ["d"]}), at, mode="append")
    assert [item.fragments for item in items] == [(0,), (1,)]
    assert [item.rows for item in items] == [(1,), (1,)]
    found = read_all(items)
    assert [row["text"] for row in found.rows["node:Note"]] == ["a", "c"]


@pytest.mark.parametrize("name", ["Note.parquet", "Note.arrow"])
def test_a_damaged_file_is_reported_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"not what it seems")
    with pytest.raises(BadRequest, match=f"cannot read '.*{name}'"):
        plan(tmp_path / name)


def test_a_folder_that_is_no_lance_table_is_reported(tmp_path: Path) -> None:
    (tmp_path / "Note.lance").mkdir()
    with pytest.raises(StorageFailure, match=r"Note\.lance"):
        plan(tmp_path / "Note.lance")


def test_records_take_no_mapping(tmp_path: Path) -> None:
    (tmp_path / "n.ndjson").write_bytes(NOTE)
    mapping = build_mapping({"inputs": [{"files": "*.ndjson", "type": "Note", "drop": "x"}]})
    with pytest.raises(BadRequest, match="has records that say themselves what they are"):
        plan(tmp_path / "n.ndjson", mapping=mapping)


def test_a_mapping_may_give_the_format_of_files_with_other_names(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(NOTE)
    mapping = build_mapping({"inputs": [{"files": "*.txt", "format": "ndjson"}]})
    assert len(read(tmp_path, mapping=mapping).rows["node:Note"]) == 1


@pytest.mark.parametrize(
    ("name", "known", "stem"),
    [
        ("a.jsonl", Format.NDJSON, "a"),
        ("a.b.CSV.GZ", Format.CSV_GZ, "a.b"),
        ("Person.feather", Format.ARROW, "Person"),
        ("x.lance", Format.LANCE, "x"),
        ("a.gz", None, "a.gz"),
        ("parquet", None, "parquet"),
    ],
)
def test_formats_follow_from_endings(name: str, known: Format | None, stem: str) -> None:
    assert format_of(name) is known
    assert strip_extension(name) == stem


@pytest.mark.parametrize(
    ("text", "path", "matches"),
    [
        ("a/*.csv", "a/b.csv", True),
        ("a/*.csv", "a/b/c.csv", False),
        ("a/**/*.csv", "a/b/c.csv", True),
        ("a/**/*.csv", "a/c.csv", True),
        ("a?.csv", "ab.csv", True),
        ("a?.csv", "a/.csv", False),
        ("[ab].csv", "b.csv", True),
        ("[!ab].csv", "b.csv", False),
        ("[!ab].csv", "c.csv", True),
        ("a+(b).csv", "a+(b).csv", True),
        ("a[.csv", "a[.csv", True),
    ],
)
def test_patterns_of_paths(text: str, path: str, matches: bool) -> None:
    assert (pattern(text).fullmatch(path) is not None) is matches


def test_small_files_are_packed_into_as_many_items_as_there_is_work_for(tmp_path: Path) -> None:
    for at in range(1000):
        (tmp_path / f"{at:04}.ndjson").write_bytes(NOTE)
    one_by_one = plan(tmp_path)
    packed = pack_files(one_by_one, 2)
    assert len(packed) == 8, "opening a file counts, so that all cores share many small files"
    assert [item.number for item in packed] == list(range(8))
    assert [file.file for item in packed for file in item.files] == [item.file for item in one_by_one]
    assert [file.size for item in packed for file in item.files] == [len(NOTE)] * 1000
    assert sum(item.size for item in packed) == 1000 * len(NOTE)
    assert 32 <= len(pack_files(one_by_one, 32)) <= 34


def test_parts_of_a_large_file_are_packed_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, lines in (("a", 1), ("b", 1), ("c", 400), ("d", 1), ("e", 1)):
        (tmp_path / f"{name}.ndjson").write_bytes(NOTE * lines)
    items = plan(tmp_path, split=200 * len(NOTE))
    packed = pack_files(items, 2)
    names = ["".join(Path(file.file).stem for file in item.files) for item in packed]
    assert names == ["ab", "c", "c", "de"]
