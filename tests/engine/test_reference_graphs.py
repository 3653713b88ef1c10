"""Graphs of the reference implementation, read and written in place."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.graph.schema_files import read_identified_schema
from omnigraph.errors import UnsupportedFormat
from omnigraph.lang.schema.ir import compile_with_ir, render
from tests.engine.changes.world import few_rows_at_once
from tests.engine.command_line import run_command
from tests.engine.graphs import run
from tests.reference_graphs import ReferenceGraph, convert, rows_of

SCHEMA = """
interface Named { name: String @index }
interface Dated { made: DateTime? @index }
node Thing @description("a thing") @owner("ops", team="x") implements Named, Dated {
  k: String @key
  z: I32?  y: I64?  x: U32?  w: U64?  v: F32?  u: F64?  t: Bool?  s: Date?
  moments: [DateTime]?  texts: [String]?
  kind: enum(small, big)?
  vec: Vector(3)?
  data: Blob?
  @unique(z, y)
  @range(u, 0.0..100.5)
  @check(k, "^[a-z0-9]+$")
  @index(z)
}
node Pair { b: String  a: DateTime  note: String?  @key(b, a) }
edge Near: Thing -> Thing @card(0..3) { since: DateTime?  at: Date?  @unique(src, dst) }
"""
MOMENT = "2021-03-04T05:06:07.891Z"


def lines() -> list[dict[str, Any]]:
    """Records with every kind of value, in one of them all null."""
    things = [
        {
            "type": "Thing",
            "data": {
                "k": f"t{n}", "name": f"thing {n}", "made": f"20{n % 80 + 10}-02-03T04:05:06.{n:03d}Z",
                "z": n, "y": -n, "x": n, "w": 2**63 + n, "v": n / 2, "u": n / 4, "t": n % 2 == 0,
                "s": f"19{n % 80 + 10}-05-06", "moments": [MOMENT, "1969-12-31T23:59:59.999Z"],
                "texts": ["ä", ""], "kind": "big" if n % 3 else "small", "vec": [n, 0.5, -1],
                "data": "base64:AAEC",
            },
        }
        for n in range(40)
    ]  # fmt: skip
    bare = {"type": "Thing", "data": {"k": "bare", "name": "none"}}
    pairs = [{"type": "Pair", "data": {"b": f"p{n}", "a": MOMENT, "note": "x"}} for n in range(5)]
    edges = [
        {"edge": "Near", "from": f"t{n}", "to": f"t{n + 1}", "data": {"since": MOMENT, "at": "2020-01-02"}}
        for n in range(20)
    ]
    return [*things, bare, *pairs, *edges]


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same content in a graph of ours."""
    folder = tmp_path_factory.mktemp("ours")
    file = folder / "all.ndjson"
    file.write_text("\n".join(json.dumps(line) for line in lines()))
    with og.init(folder / "g.omni", schema=SCHEMA) as graph:
        graph.load(file, mode="append")
    return folder / "g.omni"


@pytest.fixture(scope="session")
def template(ours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of the reference with two commits of rows, and a branch."""
    place = tmp_path_factory.mktemp("reference") / "g.omni"
    made = convert(ours, place, parts=2)
    with og.open(ours, read_only=True) as graph:
        extra = rows_of(graph)["node:Thing"].slice(0, 1)
    at = extra.schema.get_field_index("id")
    for name in ("id", "k", "name"):
        at = extra.schema.get_field_index(name)
        extra = extra.set_column(at, extra.schema.field(at), pa.array(["side"]))
    made.branch("side", {"node:Thing": extra})
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "g.omni"))


def export_sorted(place: Path, to: Path, **options: Any) -> list[str]:
    """The NDJSON export, sorted; generated ids of edges aside."""
    with og.open(place, read_only=True) as graph:
        graph.export(to, overwrite=True, **options)
    return sorted(to.read_text().splitlines())


def stored_type(place: Path, path: str, column: str) -> pa.DataType:
    return lance.dataset(place / path).schema.field(column).type


def thing_path(graph: og.Graph) -> str:
    return graph._opened.load("main").state.locations["node:Thing"]


def test_reading_changes_nothing_and_gives_what_ours_gives(place: Path, ours: Path, tmp_path: Path) -> None:
    before = {at: at.read_bytes() for at in place.rglob("*") if at.is_file()}
    assert export_sorted(place, tmp_path / "a.ndjson") == export_sorted(ours, tmp_path / "b.ndjson")
    with og.open(place, read_only=True) as graph:
        assert [commit.actor for commit in graph.commits.list()] == [None, None, None]
        assert graph.snapshot("side").tables["node:Thing"].rows == 42
    assert {at: at.read_bytes() for at in place.rglob("*") if at.is_file()} == before


QUESTIONS = [
    f'$t: Thing  $t.made > datetime("{MOMENT}")',
    '$t: Thing  $t.made = datetime("2017-02-03T04:05:06.007Z")',
    f'$t: Thing  $t.moments contains datetime("{MOMENT}")',
    '$t: Thing  $t.s < date("1930-01-01")',
    '$t: Thing  $t.kind = "small"  $t.w > 9223372036854775807',
    f'$t: Thing  $t near $o  $o.made <= datetime("{MOMENT}")',
    "$t: Thing  $t.made is null",
]


@pytest.mark.parametrize("match", QUESTIONS)
def test_queries_answer_as_on_a_graph_of_ours(place: Path, ours: Path, match: str) -> None:
    text = (
        f"query q() {{ match {{ {match} }} return {{ $t, $t.made as m, $t.moments as l }} order {{ $t.k }} }}"
    )
    with og.open(place, read_only=True) as one, og.open(ours, read_only=True) as other:
        found = one.query(text).rows()
        assert found == other.query(text).rows()
        assert found


def test_every_kind_of_write_works_in_place_and_tables_keep_their_types(place: Path, tmp_path: Path) -> None:
    schema_file = (place / "_schema.ir.json").read_bytes()
    with og.open(place) as graph:
        assert (place / "_schema.ir.json").read_bytes() == schema_file
        assert (place / "_schema.ids.json").exists()
        graph.mutate('query q() { insert Thing { k: "n1", name: "new", made: now() } }')
        graph.mutate(f'query q() {{ update Thing set {{ made: datetime("{MOMENT}") }} where k = "t1" }}')
        gone = 'query q() { delete Thing where made < datetime("2012-01-01T00:00:00Z") }'
        assert graph.mutate(gone).affected_nodes > 0
        graph.mutate(f'query q() {{ insert Near {{ from: "n1", to: "t5", since: datetime("{MOMENT}") }} }}')
        new = {"type": "Thing", "data": {"k": "l1", "name": "loaded", "made": MOMENT, "moments": [MOMENT]}}
        old = {"type": "Thing", "data": {"k": "t7", "name": "replaced", "made": MOMENT}}
        for number, record in enumerate((new, old)):
            (tmp_path / f"{number}.ndjson").write_text(json.dumps(record))
        graph.load(tmp_path / "0.ndjson", mode="append")
        graph.load(tmp_path / "1.ndjson", mode="merge")
        graph.branches.create("work")
        for branch, key in (("work", "t8"), ("main", "t9")):
            changed = 'set { made: datetime("2001-01-01T00:00:00Z") }'
            graph.mutate(f'query q() {{ update Thing {changed} where k = "{key}" }}', branch=branch)
        merged = graph.merge("work", "main")
        assert merged.outcome == "merged"
        assert [found.id for found in graph.diff("work", "main")] == ["t9"]
        found = graph.query(
            'query q() { match { $t: Thing  $t.made = datetime("2001-01-01T00:00:00Z") } '
            "return { $t.k as k } order { $t.k } }"
        ).rows()
        assert [row["k"] for row in found] == ["t8", "t9"]
        graph.optimize()
        path = thing_path(graph)
        assert stored_type(place, path, "made") == pa.date64()
        assert stored_type(place, path, "moments").value_type == pa.date64()
        assert graph.merge("side", "main").outcome in ("merged", "fast_forward")
        assert (
            graph.snapshot().tables["node:Thing"].rows
            == graph.query("query q() { match { $t: Thing } return { count($t) as n } }").rows()[0]["n"]
        )
    assert [finding for finding in _doctor(place) if finding["severity"] != "info"] == []


def _doctor(place: Path) -> list[dict[str, Any]]:
    done = run_command("doctor", str(place), "--json")
    found: list[dict[str, Any]] = json.loads(done.stdout).get("findings", [])
    return found


def test_an_overwrite_and_a_schema_change_keep_the_types_of_a_table(place: Path, tmp_path: Path) -> None:
    with og.open(place) as graph:
        graph.branches.delete("side")
        added = SCHEMA.replace("kind: enum(small, big)?", "kind: enum(small, big, huge)?\n  more: DateTime?")
        renamed = added.replace("note: String?", 'remark: String? @rename_from("note")')
        assert graph.apply_schema(renamed).applied
        path = thing_path(graph)
        assert stored_type(place, path, "made") == pa.date64()
        before = graph.query("query q() { match { $t: Thing } return { $t.k as k, $t.made as m } }").rows()
        with og.open(place, read_only=True) as other:
            text = "query q() { match { $p: Pair } return { $p.remark as r } }"
            assert [row["r"] for row in other.query(text).rows()] == ["x"] * 5
        graph.export(tmp_path / "all.ndjson")
        graph.load(tmp_path / "all.ndjson", mode="overwrite")
        assert stored_type(place, path, "made") == pa.date64()
        after = graph.query("query q() { match { $t: Thing } return { $t.k as k, $t.made as m } }").rows()
        key = lambda row: row["k"]  # noqa: E731
        assert sorted(after, key=key) == sorted(before, key=key)
        assert (place / "_schema.ir.json").read_text() == render(compile_with_ir(renamed)[1], indent=2)
        first = graph.commits.list()[-1]
        assert "remark" not in graph.at(commit=first.id).schema.nodes["Pair"].properties


def test_rows_of_a_large_load_land_in_their_own_columns(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.engine.load.loader.IN_MEMORY", 0)
    records = [
        {
            "type": "Thing",
            "data": {"k": f"t{n}", "name": "big", "z": 1000 + n, "y": n, "x": 7, "made": MOMENT},
        }
        for n in range(30, 60)
    ]
    file = tmp_path / "large.ndjson"
    file.write_text("\n".join(json.dumps(record) for record in records))
    with og.open(place) as graph:
        graph.load(file, mode="merge")
        found = graph.query(
            'query q() { match { $t: Thing  $t.name = "big" } '
            "return { $t.k as k, $t.z as z, $t.y as y, $t.x as x, $t.made as m } }"
        ).rows()
    wanted = [{"k": f"t{n}", "z": 1000 + n, "y": n, "x": 7, "m": MOMENT} for n in range(30, 60)]
    assert sorted(found, key=lambda row: int(str(row["y"]))) == wanted


def test_a_merge_in_buckets_takes_rows_by_name(place: Path) -> None:
    with og.open(place) as graph:
        graph.branches.create("work")
        for branch, number in (("work", 1), ("main", 2)):
            text = f'update Thing set {{ z: 50{number}, made: datetime("{MOMENT}") }} where k = "t{number}"'
            graph.mutate(f"query q() {{ {text} }}", branch=branch)
        with few_rows_at_once(), pytest.MonkeyPatch.context() as patch:
            patch.setattr("omnigraph.engine.merge.bucketed_merge.PIECE_BYTES", 1)
            assert graph.merge("work", engine="local").outcome == "merged"
        text = "match { $t: Thing  $t.z > 500 } return { $t.k as k, $t.z as z, $t.y as y, $t.made as m }"
        found = graph.query(f"query q() {{ {text} order {{ $t.z }} }}").rows()
        assert found == [{"k": f"t{n}", "z": 500 + n, "y": -n, "m": MOMENT} for n in (1, 2)]
        assert stored_type(place, thing_path(graph), "made") == pa.date64()


def test_a_large_load_after_properties_changed_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a load number their columns as the text does, a table as it was made."""
    with og.init(tmp_path / "g", schema="node A { k: String @key  a: I32?  b: I32? }") as graph:
        graph.mutate('query q() { insert A { k: "x", a: 1, b: 2 } }')
        graph.apply_schema('node A @description("moved") { k: String @key  b: I32?  a: I32? }')
        monkeypatch.setattr("omnigraph.engine.load.loader.IN_MEMORY", 0)
        file = tmp_path / "large.ndjson"
        file.write_text('{"type": "A", "data": {"k": "y", "a": 10, "b": 20}}')
        graph.load(file, mode="append")
        found = graph.query(
            "query q() { match { $a: A } return { $a.k as k, $a.a as a, $a.b as b } order { $a.k } }"
        )
        assert found.rows() == [{"k": "x", "a": 1, "b": 2}, {"k": "y", "a": 10, "b": 20}]


# --- schema and identities -------------------------------------------------------------------------


def test_identities_of_a_changed_schema_follow_names_and_hints(tmp_path: Path) -> None:
    first = "node A { k: String @key  a: I32? } node B { k: String @key }"
    empty = pa.table({"id": pa.array([], pa.string()), "k": pa.array([], pa.string())})
    rows = {"node:A": empty.append_column("a", pa.array([], pa.int32())), "node:B": empty}
    made = ReferenceGraph(tmp_path / "g", first, rows)
    with og.open(tmp_path / "g") as graph:
        graph.mutate('query q() { insert A { k: "x", a: 1 } }')
        before = read_identified_schema(graph._opened.root)
        assert before.is_current
        path = graph._opened.load("main").state.locations["node:A"]
    made.versions["node:A"] = lance.dataset(tmp_path / "g" / path).version
    made.commits.append(_head(tmp_path / "g"))
    second = 'node A { k: String @key  b: I32? @rename_from("a")  c: I32? } node B { k: String @key }'
    stored = lance.dataset(tmp_path / "g" / path).to_table()
    renamed = stored.rename_columns(["b" if name == "a" else name for name in stored.column_names])
    made.change_schema(second, {"node:A": renamed.append_column("c", pa.nulls(1, pa.int32()))})
    with og.open(tmp_path / "g", read_only=True) as reader:
        assert reader.query("query q() { match { $a: A } return { $a.b as b } }").rows() == [{"b": 1}]
        found = read_identified_schema(reader._opened.root)
        assert not found.is_current
        old, new = before.schema.accepted.known_identities, found.schema.accepted.known_identities
        assert new.properties["node", "A", "b"] == old.properties["node", "A", "a"]
        assert new.properties["node", "A", "c"] == old.next_property
        assert new.types == old.types
        past = reader.commits.list()[-2]
        assert set(reader.at(commit=past.id).schema.nodes["A"].properties) == {"k", "a"}
    with og.open(tmp_path / "g") as graph:
        assert read_identified_schema(graph._opened.root) == type(found)(found.schema, is_current=True)
        assert graph.apply_schema(second.replace("c: I32?", "c: I32?  d: I32?")).applied
        head = graph.commits.list()
        assert "d" not in graph.at(commit=head[1].id).schema.nodes["A"].properties


def _head(place: Path) -> str:
    with og.open(place, read_only=True) as graph:
        return graph.commits.list()[0].id


def test_two_processes_open_one_for_writing_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "60")  # of a machine that is busy
    script = """
import sys
import omnigraph as og
with og.open(sys.argv[1]) as graph:
    graph.mutate('query q($k: String) { insert Thing { k: $k, name: "p" } }', {"k": sys.argv[2]})
"""
    ended: list[int] = []
    threads = [
        threading.Thread(target=lambda name=name: ended.append(run(script, str(place), name).returncode))
        for name in ("aa", "bb", "cc")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ended == [0, 0, 0]
    with og.open(place) as graph:
        assert graph.snapshot().tables["node:Thing"].rows == 44
        assert read_identified_schema(graph._opened.root).is_current


@pytest.mark.parametrize("stamp", ["5", "6", "9"])
def test_newer_formats_are_refused_by_number_with_the_way_over(place: Path, stamp: str) -> None:
    lance.dataset(place / "__manifest").update_schema_metadata({"omnigraph:internal_schema_version": stamp})
    before = {at for at in place.rglob("*") if at.is_file()}
    for read_only in (True, False):
        with pytest.raises(UnsupportedFormat, match=f"the graph has format {stamp}") as caught:
            og.open(place, read_only=read_only)
        assert "export" in (caught.value.remedy or "")
        assert "load" in (caught.value.remedy or "")
    assert {at for at in place.rglob("*") if at.is_file()} == before
