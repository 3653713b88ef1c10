"""Exports: what is written, in which order, and that a load brings all of it back."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from omnigraph import graph as graphs
from omnigraph.cli.main import main
from omnigraph.engine.export import export_part
from omnigraph.engine.export.export_request import ExportedType
from omnigraph.engine.export.row_writers import write_ndjson
from omnigraph.errors import BadRequest, InvalidValue, ResourceLimitExceeded, StorageFailure
from omnigraph.graph import Graph
from omnigraph.progress import Progress
from tests.engine.graphs import run, tree
from tests.examples import EXAMPLES

SCHEMA = """
node Person { handle: String @key  age: I32? }
node Note { text: String }
edge Knows: Person -> Person { from: Date? }
edge About: Note -> Person
"""

RICH = """
node Thing {
    text: String?  yes: Bool?  i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?
    day: Date?  moment: DateTime?  vector: Vector(3)?  blob: Blob?  kind: enum(a, b)?
    texts: [String]?  bools: [Bool]?  i64s: [I64]?  u64s: [U64]?  f32s: [F32]?  f64s: [F64]?
    days: [Date]?  moments: [DateTime]?
}
node Keyed { name: String @key  n: I64  body: Blob }
edge Joins: Keyed -> Thing { weight: F32?  note: Blob?  from: String?  to: String? }
"""


def records(*lines: Mapping[str, Any]) -> bytes:
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def make_loaded(at: Path, schema: str, data: bytes, mode: Any = "append") -> Graph:
    graph = graphs.init(at / "g.omni", schema=schema)
    if data:
        (at / "in.ndjson").write_bytes(data)
        graph.load(at / "in.ndjson", mode=mode)
    return graph


def export_bytes(graph: Graph, **options: Any) -> bytes:
    stream = io.BytesIO()
    graph.export(stream, **options)
    return stream.getvalue()


PEOPLE = records(
    {"edge": "Knows", "from": "bo", "to": "ada", "data": {"id": "k2", "from": "2020-02-29"}},
    {"type": "Person", "data": {"handle": "bo", "age": 41}},
    {"type": "Note", "data": {"id": "n1", "text": "é\u2028\u0000"}},
    {"type": "Person", "data": {"handle": "Zoe"}},
    {"type": "Person", "data": {"handle": "ada", "age": 36}},
    {"edge": "Knows", "from": "ada", "to": "bo", "data": {"id": "k1"}},
)


@pytest.fixture
def team(tmp_path: Path) -> Graph:
    return make_loaded(tmp_path, SCHEMA, PEOPLE)


# --- NDJSON --------------------------------------------------------------------------------------


def test_nodes_come_first_then_edges_each_by_name_and_id_with_every_property(team: Graph) -> None:
    assert [json.loads(line) for line in export_bytes(team).splitlines()] == [
        {"type": "Note", "data": {"id": "n1", "text": "é\u2028\u0000"}},
        {"type": "Person", "data": {"id": "Zoe", "handle": "Zoe", "age": None}},
        {"type": "Person", "data": {"id": "ada", "handle": "ada", "age": 36}},
        {"type": "Person", "data": {"id": "bo", "handle": "bo", "age": 41}},
        {"edge": "Knows", "from": "ada", "to": "bo", "data": {"id": "k1", "from": None}},
        {"edge": "Knows", "from": "bo", "to": "ada", "data": {"id": "k2", "from": "2020-02-29"}},
    ]


def test_file_folder_and_stream_hold_the_same(team: Graph, tmp_path: Path) -> None:
    streamed = export_bytes(team)
    one, packed, folder = tmp_path / "all.ndjson", tmp_path / "all.ndjson.gz", tmp_path / "all"
    result = team.export(one)
    team.export(packed)
    spread = team.export(folder)
    assert one.read_bytes() == streamed
    assert gzip.decompress(packed.read_bytes()) == streamed
    files = ["nodes/Note", "nodes/Person", "edges/About", "edges/Knows"]
    assert b"".join((folder / f"{name}.ndjson").read_bytes() for name in files) == streamed
    assert len(list(folder.rglob("*.*"))) == len(files)
    assert (result.rows, result.bytes, result.output) == (6, len(streamed), one)
    assert (result.snapshot, result.branch, result.format) == (team.snapshot().id, "main", "ndjson")
    size = (folder / "nodes/Person.ndjson").stat().st_size
    assert result.types[1] == ExportedType("node", "Person", 3, size, one)
    assert spread.types[1] == ExportedType("node", "Person", 3, size, folder / "nodes/Person.ndjson")


def test_the_same_graph_gives_the_same_packed_bytes(team: Graph, tmp_path: Path) -> None:
    team.export(tmp_path / "a.ndjson.gz")
    team.export(tmp_path / "b.ndjson.gz")
    assert (tmp_path / "a.ndjson.gz").read_bytes() == (tmp_path / "b.ndjson.gz").read_bytes()


@pytest.mark.parametrize("name", ["out", "out.jsonl", "out.ndjson.gz", "out.jsonl.gz", "out.gz"])
def test_whatever_it_is_named_it_loads_back(team: Graph, tmp_path: Path, name: str) -> None:
    team.export(tmp_path / name)
    with graphs.init(tmp_path / "again.omni", schema=SCHEMA) as again:
        again.load(tmp_path / name, mode="append")
        assert export_bytes(again) == export_bytes(team)


def test_types_are_chosen_by_name_or_key(team: Graph) -> None:
    whole = export_bytes(team).splitlines(keepends=True)
    assert export_bytes(team, types=["Knows", "Note", "Note"]) == b"".join([whole[0], *whole[4:]])
    assert export_bytes(team, types=["node:Person"]) == b"".join(whole[1:4])


def test_the_past_and_branches_are_exported_as_they_are(team: Graph) -> None:
    before, newest = export_bytes(team), team.snapshot()
    assert newest.commit is not None
    team.branches.create("draft")
    team.mutate('query q() { update Person set { age: 1 } where handle = "bo" }', branch="draft")
    team.mutate('query q() { delete Person where handle = "Zoe" }')
    assert export_bytes(team, commit=newest.commit.id) == before
    assert export_bytes(team, version=newest.version) == before
    assert newest.export(stream := io.BytesIO()).snapshot == newest.id
    assert stream.getvalue() == before
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=newest.commit.created_at)
    assert export_bytes(team, time=moment) == before
    assert export_bytes(team, branch="draft") == before.replace(b'"age":41', b'"age":1')
    assert export_bytes(team) == b"".join(
        line for line in before.splitlines(keepends=True) if b"Zoe" not in line
    )


def test_an_empty_graph_exports_and_loads_nothing(tmp_path: Path) -> None:
    graph = make_loaded(tmp_path, SCHEMA, b"")
    assert export_bytes(graph) == b""
    assert graph.export(tmp_path / "e.ndjson").rows == 0
    assert (tmp_path / "e.ndjson").read_bytes() == b""


# --- everything comes back -----------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
i32, i64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
f32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
f64 = st.floats(allow_nan=False, allow_infinity=False)
blobs = st.binary(max_size=40).map(lambda data: f"base64:{base64.b64encode(data).decode()}")


def lists(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(items, max_size=3)


THING = {
    "text": words,
    "yes": st.booleans(),
    "i32": i32,
    "i64": i64,
    "u32": u32,
    "u64": u64,
    "f32": f32,
    "f64": f64,
    "day": i32,
    "moment": i64,
    "vector": st.lists(f32, min_size=3, max_size=3),
    "blob": blobs,
    "kind": st.sampled_from("ab"),
    "texts": lists(words),
    "bools": lists(st.booleans()),
    "i64s": lists(i64),
    "u64s": lists(u64),
    "f32s": lists(f32),
    "f64s": lists(f64),
    "days": lists(i32),
    "moments": lists(i64),
}
things = st.fixed_dictionaries({name: st.none() | values for name, values in THING.items()})
keyed = st.fixed_dictionaries({"n": i64, "body": blobs})
joins = st.fixed_dictionaries(
    {"weight": st.none() | f32, "note": st.none() | blobs, "from": st.none() | words, "to": st.none() | words}
)


@st.composite
def rich_graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """The records of a graph, in any order."""
    with_ids = draw(st.dictionaries(words.filter(bool), things, max_size=5))
    without = draw(st.lists(things, max_size=2))
    keys = draw(st.dictionaries(words, keyed, max_size=4))
    nodes = [{"type": "Thing", "data": {"id": name, **data}} for name, data in with_ids.items()]
    nodes += [{"type": "Thing", "data": data} for data in without]
    nodes += [{"type": "Keyed", "data": {"name": name, **data}} for name, data in keys.items()]
    edges: list[dict[str, Any]] = []
    if with_ids and keys:
        ends = st.tuples(st.sampled_from(sorted(keys)), st.sampled_from(sorted(with_ids)), joins)
        edges = [
            {"edge": "Joins", "from": source, "to": target, "data": data}
            for source, target, data in draw(st.lists(ends, max_size=5))
        ]
    return draw(st.permutations([*nodes, *edges]))


@pytest.mark.fuzz
@settings(max_examples=EXAMPLES // 4)
@given(rich_graphs())
def test_export_load_export_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, given_records: list[dict[str, Any]]
) -> None:
    at = tmp_path_factory.mktemp("rich")
    with make_loaded(at, RICH, records(*given_records)) as first:
        written = export_bytes(first)
        (at / "again").mkdir()
        with make_loaded(at / "again", RICH, written) as second:
            assert export_bytes(second) == written
            for name in ("Thing", "Keyed", "Joins"):
                assert by_id(second, name) == by_id(first, name)
    assert written.count(b"\n") == len(given_records)
    assert comparable_values(written) == sorted(map(as_stored, given_records), key=repr)


def by_id(graph: Graph, name: str) -> pa.Table:
    return graph.snapshot().rows(name).sort_by("id")


def comparable_values(written: bytes) -> list[Any]:
    """What lines say of values that have only one form, without ids."""
    return sorted((as_stored(json.loads(line)) for line in written.splitlines()), key=repr)


def as_stored(record: Mapping[str, Any]) -> dict[str, Any]:
    # Dates are given as numbers here and written as texts; ids may be generated.
    data = {k: v for k, v in record["data"].items() if k not in ("id", "day", "moment", "days", "moments")}
    return {**record, "data": dict(sorted(data.items()))}


# --- Parquet and CSV -----------------------------------------------------------------------------


def test_parquet_keeps_the_types_of_arrow(tmp_path: Path) -> None:
    blob = f"base64:{base64.b64encode(b'bytes').decode()}"
    full = {
        "id": "b", "u64": 2**64 - 1, "f32": 0.1, "day": -(2**31), "moment": 2**63 - 1, "vector": [1, 2, 3],
        "blob": blob, "texts": ["x", ""], "kind": "a",
    }  # fmt: skip
    graph = make_loaded(
        tmp_path, RICH, records({"type": "Thing", "data": full}, {"type": "Thing", "data": {"id": "a"}})
    )
    result = graph.export(tmp_path / "out", format="parquet", types=["Thing"])
    assert [one.file for one in result.types] == [tmp_path / "out/nodes/Thing.parquet"]
    assert result.bytes == (tmp_path / "out/nodes/Thing.parquet").stat().st_size
    found = parquet.read_table(tmp_path / "out/nodes/Thing.parquet")
    stored = graph.snapshot().rows("Thing").sort_by("id")
    assert found.column("blob").to_pylist() == [None, b"bytes"]
    assert found.drop_columns("blob").schema.remove_metadata() == pa.schema(
        [column.remove_metadata() for column in stored.schema]
    )
    assert found.drop_columns("blob").equals(stored)


def test_csv_has_quotes_where_a_text_would_read_as_something_else(team: Graph, tmp_path: Path) -> None:
    team.mutate(
        'query q() { insert Person { handle: "null" } insert Person { handle: "a, \\"b\\"\\n" age: 7 } }'
    )
    team.export(tmp_path / "out", format="csv", types=["Person"])
    written = (tmp_path / "out/nodes/Person.csv").read_text()
    assert "null,null,\n" in written
    rows = list(csv.reader(io.StringIO(written, newline="")))
    assert rows[0] == ["id", "handle", "age"]
    assert ['a, "b"\n', 'a, "b"\n', "7"] in rows


def test_csv_of_edges_blobs_and_lists(tmp_path: Path) -> None:
    schema = "node N { b: Blob?  l: [F64]?  f: F64? }\nedge E: N -> N { at: DateTime? }"
    data = records(
        {"type": "N", "data": {"id": "x", "b": "base64:", "l": [1, 0.5], "f": 3}},
        {"type": "N", "data": {"id": "y", "b": "base64:YQ=="}},
        {"edge": "E", "from": "x", "to": "y", "data": {"id": "e", "at": 0}},
    )
    make_loaded(tmp_path, schema, data).export(tmp_path / "out", format="csv")
    nodes = 'id,b,l,f\nx,base64:,"[1.0,0.5]",3.0\ny,base64:YQ==,,\n'
    assert (tmp_path / "out/nodes/N.csv").read_text() == nodes
    edges = "id,from,to,at\ne,x,y,1970-01-01T00:00:00.000Z\n"
    assert (tmp_path / "out/edges/E.csv").read_text() == edges


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_folder_of_columns_loads_back_to_an_equal_graph(tmp_path: Path, form: Any) -> None:
    schema = (
        "node N { t: String?  b: Blob?  l: [F64]?  f: F32?  n: U64?  d: Date?  at: DateTime?  ok: Bool?"
        "  v: Vector(2)?  e: enum(red, blue)? }\nedge E: N -> N { w: I32? }"
    )
    full = {"t": 'a,"b"\n', "b": "base64:YQ==", "l": [1, 0.5], "f": 0.1, "n": 2**63, "d": "2024-02-29"}
    more = {"at": "2024-02-29T12:00:00.5Z", "ok": True, "v": [0.5, -1], "e": "red"}
    data = records(
        {"type": "N", "data": {"id": "x", **full, **more}},
        {"type": "N", "data": {"id": "y", "t": "", "b": "base64:", "l": []}},
        {"type": "N", "data": {"id": "z"}},
        {"edge": "E", "from": "x", "to": "y", "data": {"id": "e", "w": -7}},
        {"edge": "E", "from": "z", "to": "z", "data": {"id": "f"}},
    )
    graph = make_loaded(tmp_path, schema, data)
    graph.export(tmp_path / "out", format=form)
    with graphs.init(tmp_path / "back.omni", schema=schema) as back:
        assert back.load(tmp_path / "out", mode="append").total == 5
        assert export_bytes(back) == export_bytes(graph)


def test_ends_have_their_stored_names_where_a_property_has_the_other(team: Graph, tmp_path: Path) -> None:
    team.export(tmp_path / "out", format="csv")
    assert (
        tmp_path / "out/edges/Knows.csv"
    ).read_text() == "id,src,dst,from\nk1,ada,bo,\nk2,bo,ada,2020-02-29\n"
    assert (tmp_path / "out/edges/About.csv").read_text() == "id,from,to\n"


# --- a little at a time --------------------------------------------------------------------------


def test_large_types_are_written_in_bounded_pieces(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    keys = rng.permutation(30_000)
    graph = make_loaded(
        tmp_path,
        "node K { k: I64 @key  pad: String }",
        records(*({"type": "K", "data": {"k": int(key), "pad": "x" * 1000}} for key in keys)),
    )

    class Sizes(io.BytesIO):
        largest = 0

        def write(self, data: Any, /) -> int:
            self.largest = max(self.largest, len(data))
            return super().write(data)

    heard: list[tuple[int, int | None, int]] = []
    stream = Sizes()
    result = graph.export(stream, progress=lambda now: heard.append((now.rows, now.all_rows, now.bytes)))
    ids = [json.loads(line)["data"]["id"] for line in stream.getvalue().splitlines()]
    assert ids == sorted(map(str, keys.tolist()))
    assert stream.largest < len(stream.getvalue()) / 5
    assert len(heard) > 5
    assert heard == sorted(heard)
    assert heard[-1] == (30_000, 30_000, result.bytes)
    again = graphs.init(tmp_path / "again.omni", schema="node K { k: I64 @key  pad: String }")
    (tmp_path / "again.ndjson").write_bytes(stream.getvalue())
    again.load(tmp_path / "again.ndjson", mode="append")
    assert export_bytes(again) == stream.getvalue()


def test_blobs_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    bodies = {f"k{number}": bytes([number]) * 3_000_000 for number in range(8)}
    graph = make_loaded(
        tmp_path,
        "node D { k: String @key  b: Blob? }",
        records(
            *(
                {"type": "D", "data": {"k": key, "b": f"base64:{base64.b64encode(body).decode()}"}}
                for key, body in reversed(bodies.items())
            ),
            {"type": "D", "data": {"k": "none"}},
        ),
    )
    (part,) = export_part.list_parts(graph._opened, graph.snapshot()._pinned, ["D"])
    batches = list(part.batches(4 * 2**20))
    assert max(len(batch.column("b").drop_null()) for batch in batches) <= 2
    found = {row["k"]: row["b"] for batch in batches for row in batch.to_pylist()}
    assert found == {**bodies, "none": None}


# --- complete, or not at all ---------------------------------------------------------------------

KILLED = """
import os, sys
from omnigraph import graph
with graph.open(sys.argv[1], read_only=True) as opened:
    opened.export(
        sys.argv[2],
        format=sys.argv[3],
        overwrite=len(sys.argv) > 4,
        progress=lambda now: os._exit(86) if now.rows else None,
    )
"""


@pytest.mark.parametrize(("name", "form"), [("x.ndjson", "ndjson"), ("x", "ndjson"), ("x", "parquet")])
def test_a_killed_export_leaves_nothing_under_its_name(
    team: Graph, tmp_path: Path, name: str, form: Any
) -> None:
    done = run(KILLED, team.uri, str(tmp_path / name), form)
    assert done.returncode == 86, done.stderr
    assert not (tmp_path / name).exists()
    team.export(tmp_path / name, format=form, types=["Person"])
    before = read_contents(tmp_path / name)
    assert run(KILLED, team.uri, str(tmp_path / name), form, "overwrite").returncode == 86
    assert read_contents(tmp_path / name) == before


def read_contents(at: Path) -> Any:
    return at.read_bytes() if at.is_file() else tree(at)


@pytest.mark.parametrize("name", ["x.ndjson", "x"])
def test_a_failed_export_leaves_nothing_at_all(team: Graph, tmp_path: Path, name: str) -> None:
    def fail(now: Progress) -> None:
        if now.rows:
            raise KeyboardInterrupt

    (tmp_path / "place").mkdir()
    with pytest.raises(KeyboardInterrupt):
        team.export(tmp_path / "place" / name, progress=fail)
    assert list((tmp_path / "place").iterdir()) == []


@pytest.mark.parametrize("name", ["x.ndjson", "x"])
def test_what_exists_is_replaced_only_when_asked(team: Graph, tmp_path: Path, name: str) -> None:
    (tmp_path / "place").mkdir()
    at = tmp_path / "place" / name
    team.export(at, types=["Person"])
    before = read_contents(at)
    with pytest.raises(BadRequest, match="exists already"):
        team.export(at)
    assert read_contents(at) == before
    team.export(at, types=["Note"], overwrite=True)
    assert read_contents(at) != before
    assert [found.name for found in at.parent.iterdir()] == [name]
    if at.is_dir():
        assert set(tree(at)) == {"nodes", "nodes/Note.ndjson"}


def test_a_file_that_appears_meanwhile_is_kept(team: Graph, tmp_path: Path) -> None:
    at = tmp_path / "place" / "x.ndjson"
    at.parent.mkdir()

    def appear(now: Progress) -> None:
        if now.rows:
            at.write_text("mine")

    with pytest.raises(BadRequest, match="exists already"):
        team.export(at, progress=appear)
    assert at.read_text() == "mine"
    assert list(at.parent.iterdir()) == [at]


def test_a_folder_with_other_things_is_never_replaced(team: Graph, tmp_path: Path) -> None:
    at = tmp_path / "home"
    (at / "nodes").mkdir(parents=True)
    (at / "nodes" / "letter.txt").write_text("dear")
    with pytest.raises(BadRequest, match=r"it holds 'nodes/letter\.txt', which no export wrote"):
        team.export(at, overwrite=True)
    (at / "letter.txt").write_text("dear")
    (at / "nodes" / "letter.txt").unlink()
    with pytest.raises(BadRequest, match=r"it holds 'letter\.txt', which no export wrote"):
        team.export(at, overwrite=True)
    (at / "letter.txt").rename(tmp_path / "file")
    with pytest.raises(BadRequest, match="it is not a folder"):
        team.export(tmp_path / "file", overwrite=True)
    (tmp_path / "d.ndjson").mkdir()
    with pytest.raises(BadRequest, match="it is a folder"):
        team.export(tmp_path / "d.ndjson", overwrite=True)
    assert (tmp_path / "file").read_text() == "dear"


@pytest.mark.parametrize("inside", ["", "x.ndjson", "nodes/x"])
def test_a_graph_is_not_exported_into_itself(team: Graph, inside: str) -> None:
    before = tree(Path(team.uri))
    with pytest.raises(BadRequest, match="is inside the graph"):
        team.export(Path(team.uri, inside), overwrite=True)
    assert tree(Path(team.uri)) == before


# --- errors --------------------------------------------------------------------------------------


def test_what_cannot_be_exported_is_reported(team: Graph, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="there is no type 'Persn' in snapshot") as unknown:
        team.export(tmp_path / "x", types=["Person", "Persn"])
    assert unknown.value.remedy == "it has: Note, Person, About, Knows"
    with pytest.raises(BadRequest, match="needs at least one"):
        team.export(tmp_path / "x", types=[])
    with pytest.raises(BadRequest, match="'xml' is not a format of an export"):
        team.export(tmp_path / "x", format="xml")  # type: ignore[arg-type]
    with pytest.raises(BadRequest, match="csv is a file for each type and cannot be one stream"):
        team.export(io.BytesIO(), format="csv")
    with pytest.raises(BadRequest, match="parquet is written as a folder"):
        team.export(tmp_path / "x.parquet", format="parquet")
    with pytest.raises(BadRequest, match=r"people\.csv' is a name for csv, and the export is to be ndjson"):
        team.export(tmp_path / "people.csv")
    with pytest.raises(BadRequest, match="'/' is not a name for an export"):
        team.export("/")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["g.omni", "in.ndjson"]


@pytest.mark.parametrize("name", ["x.ndjson", "x"])
def test_a_place_that_cannot_be_written_is_reported(team: Graph, tmp_path: Path, name: str) -> None:
    with pytest.raises(
        BadRequest, match=r"cannot write '.*': No such file or directory; nothing was exported"
    ):
        team.export(tmp_path / "missing" / name)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadRequest, match=r"cannot write '.*': Not a directory; nothing was exported"):
        team.export(tmp_path / "file" / name)


def test_a_full_disk_is_reported(team: Graph) -> None:
    with (
        Path("/dev/full").open("wb", buffering=0) as full,
        pytest.raises(StorageFailure, match="cannot write the output"),
    ):
        team.export(full)


def test_a_reader_that_left_is_not_an_error_of_ours(team: Graph) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb", buffering=0) as stream, pytest.raises(BrokenPipeError):
        team.export(stream)


def test_a_record_that_no_load_takes_is_refused(tmp_path: Path) -> None:
    graph = graphs.init(tmp_path / "g", schema="node T { k: String @key  s: [I64]?  t: String? }")
    with graph.write() as tx:
        tx.insert("T", {"k": "a", "s": [1] * 140_000})
    with pytest.raises(ResourceLimitExceeded, match="graph_batch_json_structural_slots of 'T'"):
        graph.export(tmp_path / "x.ndjson")
    assert graph.export(tmp_path / "x", format="parquet").rows == 1
    with graph.write() as tx:
        tx.update("T", ("k", "=", "a"), {"s": None, "t": "\x01" * (6 * 2**20)})
    with pytest.raises(ResourceLimitExceeded, match="graph_batch_line_bytes of 'T'"):
        graph.export(tmp_path / "x.ndjson")
    assert not (tmp_path / "x.ndjson").exists()


@pytest.mark.parametrize(("name", "value"), [("f32", float("nan")), ("f64s", [0.5, float("inf")])])
def test_a_number_that_json_does_not_have_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    graph = make_loaded(tmp_path, RICH, b"")
    (part,) = export_part.list_parts(graph._opened, graph.snapshot()._pinned, ["Thing"])
    # No write of ours stores such a number, so the row comes from elsewhere.
    row = pa.RecordBatch.from_pylist([{"id": "a", name: value}], schema=part.schema)
    with pytest.raises(InvalidValue, match=rf"'Thing\.{name}' has a number that is not finite"):
        list(write_ndjson(part, iter([row])))


def test_a_large_blob_is_refused_as_csv_and_is_in_a_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with graphs.init(tmp_path / "g.omni", schema="node T { k: String @key  b: Blob? }") as graph:
        graph.load([{"k": "a", "b": bytes(26 * 2**20)}, {"k": "b", "b": b"x"}], type="T", mode="append")
        with pytest.raises(ResourceLimitExceeded, match="csv_record_bytes of 'T'") as refused:
            graph.export(tmp_path / "x", format="csv")
        assert refused.value.remedy == "export it as parquet, or leave the type out"
        assert not (tmp_path / "x").exists()
        graph.export(tmp_path / "x", format="parquet")
    with graphs.init(tmp_path / "back.omni", schema="node T { k: String @key  b: Blob? }") as back:
        back.load(tmp_path / "x", mode="append")
        assert back.snapshot().blob("T", "a", "b").size == 26 * 2**20
    out = tmp_path / "baseline.ndjson"
    assert main(["changes", "baseline", "--uri", str(tmp_path / "g.omni"), "--out", str(out)]) == 0
    lines = out.read_bytes().splitlines()
    assert [len(line) > 32 * 2**20 for line in lines] == [True, False]
    assert "cursor: " in capsys.readouterr().out
