from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.layout import (
    fnv1a64,
    refuse_colliding_paths,
    split_key,
    table_keys,
    table_path,
    version_file,
)
from omnigraph.engine.graph.manifest import TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.errors import InvalidName
from omnigraph.lang.schema import compile_schema
from omnigraph.storage.location import Location
from tests.engine.graphs import KNOWS, PERSON, SCHEMA, TEAM, add_branch, bare_publish, manifest_rows, tree

NOON = 1_800_000_000_000_000
COLUMNS = [
    "object_id",
    "object_type",
    "location",
    "metadata",
    "base_objects",
    "table_key",
    "table_version",
    "table_branch",
    "row_count",
]


def ids() -> Iterator[str]:
    yield from (f"01TEST{number:020d}" for number in range(1000))


@pytest.fixture
def root(folder: Location) -> Root:
    """A graph whose clock stands at noon and whose ids are numbered; the first one went to the claim."""
    made = replace(Root.at(folder), clock=lambda: NOON, new_id=ids().__next__)
    create_graph(made, SCHEMA)
    return made


def stored_rows(root: Root, branch: str | None = None) -> list[tuple[Any, ...]]:
    rows = manifest_rows(root, branch)
    assert rows.column_names == COLUMNS
    return sorted(zip(*(rows.column(name).to_pylist() for name in COLUMNS), strict=True))


def version_metadata(path: str) -> str:
    return f'{{"manifest_path":"{path}","manifest_size":null,"e_tag":null,"naming_scheme":"V2"}}'


def table_row(key: str, path: str) -> tuple[Any, ...]:
    return (key, "table", path, None, None, key, None, None, None)


def version_row(key: str, version: int, file: str, owner: str | None, rows: int) -> tuple[Any, ...]:
    object_id = f"{key}${version:020d}"
    return (object_id, "table_version", None, version_metadata(file), None, key, version, owner, rows)


PERSON_PATH, TEAM_PATH, KNOWS_PATH = (
    "nodes/40d76f1f51639ec0",
    "nodes/24b1dafb1b20370c",
    "edges/602a25a3bd0b455b",
)
FIRST = "18446744073709551614"
GENESIS = "01TEST00000000000000000001"
TABLE_ROWS = [
    table_row(KNOWS, KNOWS_PATH),
    version_row(KNOWS, 1, f"{KNOWS_PATH}/_versions/{FIRST}.manifest", None, 0),
    table_row(PERSON, PERSON_PATH),
    version_row(PERSON, 1, f"{PERSON_PATH}/_versions/{FIRST}.manifest", None, 0),
    table_row(TEAM, TEAM_PATH),
    version_row(TEAM, 1, f"{TEAM_PATH}/_versions/{FIRST}.manifest", None, 0),
]
GENESIS_ROW = (
    GENESIS,
    "graph_commit",
    None,
    f'{{"created_at":{NOON}}}',
    None,
    "",
    1,
    "main",
    None,
)


def head_row(branch: str, metadata: str) -> tuple[Any, ...]:
    return (f"graph_head:{branch}", "graph_head", None, metadata, None, "", None, None, None)


# --- a new graph -----------------------------------------------------------------------------------


def test_a_new_manifest_holds_exactly_these_rows(root: Root) -> None:
    head = head_row("main", f'{{"head_commit_id":"{GENESIS}"}}')
    assert stored_rows(root) == sorted([*TABLE_ROWS, GENESIS_ROW, head])


def test_the_manifest_dataset_has_the_stored_form(root: Root) -> None:
    dataset = lance.dataset(root.layout.manifest.uri)
    text = pa.string()
    expected = [
        ("object_id", text, False, {b"lance-schema:unenforced-primary-key": b"true"}),
        ("object_type", text, False, None),
        ("location", text, True, None),
        ("metadata", text, True, None),
        ("base_objects", pa.list_(text), True, None),
        ("table_key", text, False, None),
        ("table_version", pa.uint64(), True, None),
        ("table_branch", text, True, None),
        ("row_count", pa.uint64(), True, None),
    ]
    assert [(f.name, f.type, f.nullable, f.metadata) for f in dataset.schema] == expected
    assert dataset.schema.metadata == {b"omnigraph:internal_schema_version": b"4"}
    assert dataset.config() == {"table_version_management": "true"}
    assert dataset.has_stable_row_ids
    assert dataset.data_storage_version == "2.2"


def test_the_stamp_and_all_rows_are_in_the_very_first_version(root: Root) -> None:
    first = lance.dataset(root.layout.manifest.uri, version=1)
    assert first.schema.metadata == {b"omnigraph:internal_schema_version": b"4"}
    assert first.count_rows() == 8
    assert first.has_stable_row_ids


@pytest.mark.parametrize(
    ("path", "columns"),
    [(PERSON_PATH, ["id", "name"]), (TEAM_PATH, ["id", "name"]), (KNOWS_PATH, ["id", "src", "dst"])],
)
def test_each_type_is_an_empty_table_with_its_id_as_key(root: Root, path: str, columns: list[str]) -> None:
    dataset = lance.dataset(f"{root.uri}/{path}")
    assert (dataset.version, dataset.count_rows(), dataset.schema.names) == (1, 0, columns)
    assert dataset.has_stable_row_ids
    assert dataset.data_storage_version == "2.2"
    assert not [key for key in dataset.config() if key.startswith("lance.auto_cleanup")]
    assert dataset.schema.field("id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    system = [dataset.schema.field(name) for name in columns if name != "name"]
    assert [(field.type, field.nullable) for field in system] == [(pa.string(), False)] * len(system)


def test_the_files_of_a_new_graph_are_these_and_no_others(root: Root, folder: Location) -> None:
    top = {name.partition("/")[0] for name in tree(folder.path)}
    files = {"_schema.pg", "_schema.ir.json", "__schema_state.json", "_schema.ids.json"}
    assert top == {
        "__manifest",
        "nodes",
        "edges",
        "__schemas",
        "__locks",
        "__checksums",
        "__place.json",
        *files,
    }
    assert (folder.path / "__schemas" / f"{GENESIS}.pg").read_text() == SCHEMA
    assert (folder.path / "_schema.pg").read_text() == SCHEMA


# --- rows of a publish -----------------------------------------------------------------------------


def test_a_publish_adds_exactly_its_rows_and_rewrites_the_head(root: Root) -> None:
    coordinator = Coordinator(root, "main")
    before = stored_rows(root)
    changes = ManifestChanges(
        registered={"node:Näme": "nodes/fedcba9876543210"},
        versions=(TableVersion(PERSON, 7, None, 12), TableVersion("node:Näme", 1, None, 0)),
        dropped={TEAM: 1},
    )
    commit = "01TEST99999999999999999999"
    metadata = (
        f'{{"parent_commit_id":"{GENESIS}","merged_parent_commit_id":"01TESTOTHER",'
        f'"actor_id":"zoë \\"z\\"","created_at":{NOON + 1}}}'
    )
    publish(coordinator, changes, NewCommit(commit, actor='zoë "z"', merged_parent="01TESTOTHER"))
    new = [
        table_row("node:Näme", "nodes/fedcba9876543210"),
        version_row(PERSON, 7, f"{PERSON_PATH}/_versions/18446744073709551608.manifest", None, 12),
        version_row("node:Näme", 1, f"nodes/fedcba9876543210/_versions/{FIRST}.manifest", None, 0),
        (f"{TEAM}$tombstone${1:020d}", "table_tombstone", None, None, None, TEAM, 1, None, None),
        (
            commit,
            "graph_commit",
            None,
            metadata,
            None,
            "",
            3,
            "main",
            None,
        ),
        head_row("main", f'{{"head_commit_id":"{commit}","parent_commit_id":"{GENESIS}"}}'),
    ]
    kept = [row for row in before if row[1] != "graph_head"]
    assert stored_rows(root) == sorted([*kept, *new])


def test_a_commit_without_actor_and_merge_leaves_these_keys_out(root: Root) -> None:
    done = bare_publish(Coordinator(root, "main"))
    found = next(row for row in stored_rows(root) if row[0] == done.commit.id)
    assert found[3] == f'{{"parent_commit_id":"{GENESIS}","created_at":{NOON + 1}}}'


def test_rows_of_a_branch_name_it_and_its_forks(root: Root) -> None:
    graph = OpenGraph(root, read_only=False)
    work = add_branch(graph, "team/work")
    done = bare_publish(work, {PERSON: 2}, owner="team/work", rows=3)
    inherited = stored_rows(root)
    file = f"{PERSON_PATH}/tree/team/work/_versions/18446744073709551613.manifest"
    metadata = f'{{"parent_commit_id":"{GENESIS}","created_at":{NOON + 1}}}'
    own = [
        version_row(PERSON, 2, file, "team/work", 3),
        (done.commit.id, "graph_commit", None, metadata, None, "", 3, "team/work", None),
        head_row("team/work", f'{{"head_commit_id":"{done.commit.id}","parent_commit_id":"{GENESIS}"}}'),
    ]
    assert stored_rows(root, "team/work") == sorted([*inherited, *own])
    assert stored_rows(root) == inherited


def test_rows_of_unknown_kinds_are_skipped_and_kept(root: Root) -> None:
    known = OpenGraph.open(root).load("main").state
    strange = dict.fromkeys(COLUMNS) | {
        "object_id": "graph_tag:v1",
        "object_type": "graph_tag",
        "metadata": "not even json",
        "table_key": "",
    }
    dataset = lance.dataset(root.layout.manifest.uri)
    rows = pa.Table.from_pylist([strange], schema=dataset.schema)
    dataset.merge_insert("object_id").when_not_matched_insert_all().execute(rows)
    graph = OpenGraph.open(Root.at(root.layout.root))
    found = graph.load("main").state
    assert (found.entries(), found.commits, found.heads) == (known.entries(), known.commits, known.heads)
    bare_publish(graph.coordinator("main"), {PERSON: 2})
    assert "graph_tag:v1" in [row[0] for row in stored_rows(root)]


# --- names and places ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "cbf29ce484222325"),
        ("a", "af63dc4c8601ec8c"),
        ("foobar", "85944171f73967e8"),
        ("Person", "40d76f1f51639ec0"),
        ("Knows", "602a25a3bd0b455b"),
    ],
)
def test_fnv1a64_gives_the_published_vectors(text: str, expected: str) -> None:
    assert fnv1a64(text) == expected


def test_fnv1a64_hashes_utf8_bytes() -> None:
    value = 0xCBF29CE484222325
    for byte in "é".encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    assert int(fnv1a64("é"), 16) == value


def test_nodes_and_edges_of_one_name_live_apart() -> None:
    assert table_path("node", "Person") == PERSON_PATH
    assert table_path("edge", "Person") == PERSON_PATH.replace("nodes", "edges")


TWINS = ("gMPflVXtwGDXbIhP73TX", "LtHf1prlU1bCeYZEdqWf")


def test_two_names_with_one_hash_are_refused() -> None:
    assert fnv1a64(TWINS[0]) == fnv1a64(TWINS[1])
    with pytest.raises(InvalidName) as caught:
        refuse_colliding_paths([f"node:{name}" for name in TWINS])
    assert all(name in caught.value.message for name in TWINS)
    refuse_colliding_paths([f"node:{TWINS[0]}", f"edge:{TWINS[1]}"])


@pytest.mark.parametrize("key", ["", "node", "node:", "Person", "table:Person", ":Person", "nodes:Person"])
def test_what_is_no_table_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidName):
        split_key(key)


def test_table_keys_are_sorted_whatever_the_schema_says() -> None:
    assert table_keys(compile_schema(SCHEMA)) == [KNOWS, PERSON, TEAM]


def test_version_files_count_down_from_the_greatest_number() -> None:
    assert version_file("nodes/x", None, 1) == "nodes/x/_versions/18446744073709551614.manifest"
    assert version_file("nodes/x", "a/b", 7) == "nodes/x/tree/a/b/_versions/18446744073709551608.manifest"


def test_the_recorded_file_is_where_lance_put_the_version(root: Root, folder: Location) -> None:
    for row in stored_rows(root):
        if row[1] == "table_version":
            path = row[3].partition('"manifest_path":"')[2].partition('"')[0]
            assert (folder.path / path).is_file()
