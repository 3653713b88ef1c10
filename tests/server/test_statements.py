"""Writes whose statements a client collected: what travels, ids that it chose, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import omnigraph as og
from omnigraph.client.statements import statement_json
from omnigraph.engine.write.builder import ReceivedStatement, WriteBlock, run_received, schema_behind
from omnigraph.errors import KeyConflict, ReadSetChanged
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.server.wire.statements import WriteRequest, WriteSchemaOutput
from tests.server.running import RunningServer

CONDITION = "Omnigraph-If-Graph-Commit"
NEW = "01K0ABCDEFGHJKMNPQRSTVWXYZ"
SCHEMA = """\
node Note { src: String?  day: Date?  size: F32? }
node Room { house: String  number: I32  @key(house, number) }
edge In: Note -> Room { from: String? }
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    """Types without a key, with a composite key that was renamed, and with properties called like ends."""
    with og.init(tmp_path_factory.mktemp("statements") / "g.omni", schema=SCHEMA) as made:
        renamed = SCHEMA.replace("house: String", 'aisle: String @rename_from("house")')
        made.apply_schema(renamed.replace("@key(house, number)", "@key(number, aisle)"))
        yield made


def send_on(graph: og.Graph, collect: Callable[[WriteBlock], Any], schema: str | None = None) -> Any:
    """Collect statements in one block, and run them in another after they were JSON."""
    block = graph.write()
    block.__enter__()
    collect(block)
    pairs = zip(block._statements, block._ids, strict=True)
    body = {"statements": [statement_json(*one) for one in pairs]}
    received = msgspec.json.decode(msgspec.json.encode(body), type=WriteRequest)

    def resolve(catalog: Catalog) -> Iterator[ReceivedStatement]:
        return (one.resolve(catalog) for one in received.statements)

    return run_received(graph.write(), schema, resolve)


def test_statements_mean_the_same_after_they_were_sent(graph: og.Graph) -> None:
    ids: list[str] = []

    def insert(tx: WriteBlock) -> None:
        ids.append(tx.insert("Note", src="from", day="2030-01-31", size=0.1))
        ids.append(tx.insert("Room", aisle="a", number=7))
        ids.append(tx.insert_edge("In", ids[0], ids[1], {"from": "to"}))
        tx.update("Note", ("src", "=", "from"), src="dst")
        tx.update("Note", ("`day`", "in", ["2030-01-31"]), size=2)

    done = send_on(graph, insert)
    assert (done.affected_nodes, done.affected_edges) == (4, 1)
    pinned = graph.snapshot()
    (note,) = pinned.rows("Note").to_pylist()
    (edge,) = pinned.rows("In").to_pylist()
    assert (note["id"], note["src"], note["size"]) == (ids[0], "dst", 2.0)
    assert pinned.rows("Room").column("id").to_pylist() == [ids[1]]
    assert (edge["id"], edge["src"], edge["dst"], edge["from"]) == (ids[2], ids[0], ids[1], "to")
    assert send_on(graph, lambda tx: tx.delete("In", ("`from`", "=", ids[0]))).commit is None
    assert send_on(graph, lambda tx: tx.delete("In", ("from", "=", ids[0]))).affected_edges == 1


def test_a_composite_key_is_ordered_as_the_graph_orders_it(graph: og.Graph) -> None:
    schema = WriteSchemaOutput.of(schema_behind(graph.write()))
    assert schema.composite_keys == {"Room": ["aisle", "number"]}
    assert schema.schema_source == graph.schema_source


def test_a_chosen_id_that_is_stored_is_a_conflict(graph: og.Graph, tmp_path: Path) -> None:
    kept: list[str] = []
    send_on(graph, lambda tx: kept.append(tx.insert("Note")))

    def insert_again(tx: WriteBlock) -> None:
        tx.insert("Note")
        tx._ids[0] = kept[0]
        tx.update("Note", ("src", "is null"), src="x")

    with pytest.raises(KeyConflict) as conflict:
        send_on(graph, insert_again)
    assert (conflict.value.type_name, conflict.value.entity_id) == ("Note", kept[0])


def test_statements_for_another_schema_are_a_conflict(graph: og.Graph) -> None:
    with pytest.raises(ReadSetChanged) as conflict:
        send_on(graph, lambda tx: tx.insert("Note"), schema="another")
    assert (conflict.value.member, conflict.value.expected) == ("schema", "another")


def insert(**more: Any) -> dict[str, Any]:
    return {"op": "insert", "type": "Person", "values": {"name": "Ulf"}, **more}


def connect(**more: Any) -> dict[str, Any]:
    return {"op": "insert_edge", "type": "Knows", "from": "Ada", "to": "Di", **more}


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ([insert(id="Ada")], "'Ada' cannot be the id of a new `Person`"),
        ([connect(id="x")], "'x' cannot be the id of a new `Knows`"),
        ([connect(id=NEW), connect(id=NEW)], f"'{NEW}' cannot be the id of a new `Knows`"),
        ([insert(), {"op": "delete", "type": "Person", "where": ["age", "is null"]}], "mixes"),
        ([{"op": "update", "type": "Person", "where": [], "values": {"age": 1}}], "is not a test of rows"),
        ([{"op": "drop"}], "the body has the wrong shape"),
        ([insert(values={"name": "x", "photo": "file:///etc/hostname"})], "photo"),
    ],
)
def test_wrong_statements_are_bad_requests(
    policy_server: RunningServer, statements: list[Any], message: str
) -> None:
    with policy_server.client("root") as client:
        head = client.get("/commits").json()["commits"][0]
        answer = client.post("/write", json={"statements": statements})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), answer.text
        assert message in answer.json()["error"]
        assert client.get("/commits").json()["commits"][0] == head


def test_a_write_has_an_optional_condition_and_the_actor_of_its_token(policy_server: RunningServer) -> None:
    with policy_server.client("root") as client:
        head = client.get("/commits").json()["commits"][0]["graph_commit_id"]
        body = {"statements": [insert(id="Ulf"), connect(id=NEW)]}
        done = client.post("/write", json=body, headers={CONDITION: head}).json()
        assert (done["affected_nodes"], done["affected_edges"], done["actor_id"]) == (1, 1, "root")
        assert done["commit"]["parent_commit_id"] == head
        lost = client.post("/write", json={"statements": [insert()]}, headers={CONDITION: head})
        assert lost.status_code == 412
        assert lost.json()["precondition_failure"]["expected"] == head
        assert client.post("/write", json=body, headers={CONDITION: "*"}).status_code == 400
        taken = client.post("/write", json=body)
        assert taken.status_code == 409
        assert taken.json()["key_conflict"]["entity_id"] == NEW


def test_one_right_is_asked_for_a_write_and_for_its_schema(policy_server: RunningServer) -> None:
    with policy_server.client("reader") as client:
        for answer in (
            client.get("/write/schema", params={"branch": " main "}),
            client.post("/write", json={"statements": [], "branch": " main "}),
        ):
            assert answer.status_code == 403
            assert (
                answer.json()["error"] == "policy denied action 'change' on branch 'main' for actor 'reader'"
            )
