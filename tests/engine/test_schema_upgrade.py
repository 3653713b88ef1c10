"""Graphs of earlier releases get the common shape of the compiled schema when they are opened for writing."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.schema_files import read_identified_schema, read_schema
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.errors import OmnigraphError, StorageFailure
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.ir import compile_with_ir, ir_hash, legacy_hash, legacy_ir, render
from omnigraph.storage.location import Location
from tests.engine.graphs import run, tree

FIRST = "node M { tenant: String  slot: String  a: I32?  @key(tenant, slot) }"
SCHEMA = 'node M { account: String @rename_from("tenant")  slot: String  a: I32?  @key(account, slot) }'
ROW = 'query q() { insert M { account: "t", slot: "s", a: 1 } }'


def write_legacy(place: Path) -> AcceptedSchema:
    """Give a graph the schema files of an earlier release, and return its schema."""
    accepted = read_identified_schema(Root.at(Location.parse(place))).schema.accepted
    value = legacy_ir(accepted)
    (place / "_schema.ir.json").write_text(json.dumps(value, indent=2))
    state = json.loads((place / "__schema_state.json").read_text())
    (place / "__schema_state.json").write_text(json.dumps(state | {"schema_ir_hash": legacy_hash(value)}))
    (place / "_schema.ids.json").unlink()
    return accepted


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of an earlier release; by a rename its identities are no longer in the order of names."""
    place = tmp_path_factory.mktemp("legacy") / "g.omni"
    with og.init(place, schema=FIRST) as graph:
        graph.mutate('query q() { insert M { tenant: "x", slot: "y" } }')
        graph.apply_schema(SCHEMA)
    write_legacy(place)
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "g.omni"))


def schema_files(place: Path) -> set[str]:
    return {at.name for at in place.glob("*schema*") if at.is_file()}


def require_upgraded(place: Path) -> None:
    """The files have the common shape and the identities are what they were."""
    root = Root.at(Location.parse(place))
    found = read_identified_schema(root)
    assert found.is_current
    value = compile_with_ir(SCHEMA)[1]
    assert (place / "_schema.ir.json").read_text() == render(value, indent=2)
    state = json.loads((place / "__schema_state.json").read_text())
    assert state["schema_ir_hash"] == ir_hash(value)
    assert found.schema.targets["node:M"].identity == ("slot", "account")
    for left in place.glob("*.staging"):
        assert left.read_text() == left.with_suffix("").read_text()


def test_read_only_serves_it_as_it_is(place: Path) -> None:
    before = tree(place)
    with og.open(place, read_only=True) as graph:
        query = "query q() { match { $m: M } return { $m, $m.account as a } }"
        assert [row["a"] for row in graph.query(query).rows()] == ["x"]
        schema = graph._opened.schema()
        assert schema.is_legacy
        assert schema.targets["node:M"].identity == ("slot", "account")
    assert tree(place) == before


def test_opening_for_writing_carries_it_over_and_keeps_identities(place: Path) -> None:
    with og.open(place) as graph:
        require_upgraded(place)
        graph.mutate(ROW)
        found = graph.snapshot().rows("M").to_pylist()
        assert {row["id"] for row in found} == {'["y","x"]', '["s","t"]'}
        assert graph.apply_schema(SCHEMA.replace("a: I32?", 'b: I32? @rename_from("a")')).applied
        ids = read_identified_schema(graph._opened.root).schema.accepted.known_identities
        assert ids.properties["node", "M", "b"] == 1
    assert schema_files(place) == {"_schema.pg", "_schema.ir.json", "_schema.ids.json", "__schema_state.json"}


def test_a_kill_at_any_call_leaves_a_graph_that_opens(template: Path, tmp_path: Path) -> None:
    calls, died = 0, True
    for dies_at in range(200):
        place = Path(shutil.copytree(template, tmp_path / str(dies_at)))
        calls = 0

        def observe(called: str, uri: str, /, at: int = dies_at) -> None:
            nonlocal calls
            calls += 1
            if calls > at:
                raise StorageFailure(called, kind="Transient", uri=uri)

        try:
            open_graph(Root.at(Location.parse(place), observe))
        except OmnigraphError:
            died = True
        else:
            died = False
        reader = OpenGraph.open(Root.at(Location.parse(place)), read_only=True)
        assert reader.schema().targets["node:M"].identity == ("slot", "account")
        open_graph(Root.at(Location.parse(place)))
        require_upgraded(place)
        shutil.rmtree(place)
        if not died:
            break
    assert calls > 20
    assert not died


def test_two_processes_carry_it_over_at_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "60")  # of a machine that is busy
    script = """
import sys
import omnigraph as og
with og.open(sys.argv[1]) as graph:
    graph.mutate('query q($s: String) { insert M { account: "t", slot: $s } }', {"s": sys.argv[2]})
"""
    ended = []
    threads = [
        threading.Thread(target=lambda name=name: ended.append(run(script, str(place), name)))
        for name in ("a", "b", "c")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [done.returncode for done in ended] == [0, 0, 0], [done.stderr for done in ended]
    require_upgraded(place)
    with og.open(place, read_only=True) as graph:
        assert graph.snapshot().tables["node:M"].rows == 4


def test_carrying_over_in_any_store(shared_root: Location) -> None:
    root = Root.at(shared_root)
    create_graph(root, SCHEMA)
    accepted = read_identified_schema(root).schema.accepted
    value = legacy_ir(accepted)
    state = {"format_version": 1, "schema_ir_hash": legacy_hash(value), "schema_identity_version": 1}
    root.objects.write_text(root.layout.schema_ir, json.dumps(value))
    root.objects.write_text(root.layout.schema_state, json.dumps(state))
    root.objects.delete(root.layout.schema_ids)
    assert read_schema(Root.at(shared_root)).is_legacy
    open_graph(Root.at(shared_root))
    found = read_identified_schema(Root.at(shared_root))
    assert found.is_current
    assert found.schema.accepted == accepted
    assert json.loads(root.objects.read_text(root.layout.schema_ir)) == compile_with_ir(SCHEMA)[1]


def test_a_compiled_schema_in_another_order_stays_and_is_bound_once(place: Path) -> None:
    with og.open(place):
        pass
    value = json.loads((place / "_schema.ir.json").read_text())
    value["nodes"][0]["properties"].reverse()
    text = json.dumps(value)
    (place / "_schema.ir.json").write_text(text)
    state = json.loads((place / "__schema_state.json").read_text()) | {"schema_ir_hash": ir_hash(value)}
    (place / "__schema_state.json").write_text(json.dumps(state))
    with og.open(place) as graph:
        found = read_identified_schema(graph._opened.root)
        assert found.is_current
        assert found.schema.targets["node:M"].identity == ("slot", "account")
    assert (place / "_schema.ir.json").read_text() == text


def test_a_missing_file_of_identities_is_made_from_names(place: Path) -> None:
    with og.open(place):
        pass
    (place / "_schema.ids.json").unlink()
    schema = read_schema(Root.at(Location.parse(place)))
    assert schema.targets["node:M"].identity == ("account", "slot")
    with og.open(place) as graph:
        assert read_identified_schema(graph._opened.root).is_current


def test_a_damaged_file_of_identities_is_named(place: Path) -> None:
    with og.open(place):
        pass
    (place / "_schema.ids.json").write_text("{")
    with pytest.raises(OmnigraphError, match=r"_schema\.ids\.json is damaged") as caught:
        og.open(place)
    assert "backup" in (caught.value.remedy or "")
