"""`omnigraph doctor`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph import errors, failpoints, graph
from omnigraph.cli.main import main
from omnigraph.engine.constraints import edge_rules
from omnigraph.storage.indexes import IndexSpec, stage_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Tables

ADD = 'query q() { insert Person { handle: "ada" } }'


@pytest.fixture
def examined(uri: str, capsys: pytest.CaptureFixture[str]) -> Callable[[], tuple[int, dict[str, Any]]]:
    """What the doctor finds: its exit status and its report."""

    def look() -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        status = main(["doctor", uri, "--json"])
        return status, json.loads(capsys.readouterr().out)

    return look


Examined = Callable[[], tuple[int, dict[str, Any]]]


def tree(uri: str) -> dict[str, int]:
    return {str(at): at.stat().st_mtime_ns for at in Path(uri).rglob("*")}


def person_table(uri: str, branch: str = "main") -> Path:
    with graph.open(uri, read_only=True) as opened:
        return Path(uri, opened.snapshot(branch).tables["node:Person"].path)


def test_a_healthy_graph_is_in_order(uri: str, run: Callable[..., str], examined: Examined) -> None:
    run("mutate", "-e", ADD, "--uri", uri)
    before = tree(uri)
    status, found = examined()
    (writer,) = found.pop("last_writers")
    history = {one["table_key"]: (one["versions"], one["past"]) for one in found.pop("history")}
    assert history == {"edge:Knows": (1, 0), "node:Person": (2, 1)}
    assert found.pop("derived") == {"files": 0, "bytes": 0}
    assert (writer["branch"], writer["owner"].split()[0]) == ("main", "process")
    assert (status, found) == (
        0,
        {
            "uri": uri,
            "ok": True,
            "operations": [],
            "unread": [],
            "drift": [],
            "forks": [],
            "indexes": [],
            "pending_indexes": [],
            "dropped": [],
            "orphan_tables": [],
            "in_vain": [],
            "removals": [],
            "staged": [],
            "unreadable_files": [],
            "below_minimum": [],
            "moved": [],
        },
    )
    *_, past, last = run("doctor", uri).splitlines()
    assert past == "history: 1 of 3 versions of tables are past; see `omnigraph cleanup`"
    assert last == "all in order"
    assert tree(uri) == before, "the doctor touched something"


def test_an_interrupted_write_and_its_drift_are_found(
    uri: str, examined: Examined, capsys: pytest.CaptureFixture[str]
) -> None:
    point = failpoints.MUTATION_POST_TABLE_COMMIT
    with (
        graph.open(uri) as opened,
        failpoints.arm(point, failpoints.error(point)),
        pytest.raises(errors.RecoveryRequired) as caught,
    ):
        opened.mutate(ADD)
    status, found = examined()
    assert (status, found["ok"]) == (1, False)
    assert [one["operation_id"] for one in found["operations"]] == [caught.value.operation_id]
    assert found["drift"] == [
        {"table_key": "node:Person", "branch": "main", "pinned": 1, "head": 2, "cause": "a write on record"}
    ]
    assert main(["doctor", uri]) == 1
    text = capsys.readouterr().out
    assert "drift: node:Person on main is at version 2, the branch shows 1: a write on record" in text
    assert text.endswith("out of order: see `omnigraph recover --dry-run`\n")
    assert main(["recover", uri]) == 0
    assert examined()[0] == 0


def test_a_change_past_the_door_is_found(
    uri: str, examined: Examined, capsys: pytest.CaptureFixture[str]
) -> None:
    table = lance.dataset(str(person_table(uri)))
    table.insert(pa.table({"id": ["x"], "handle": ["x"], "age": [1]}, schema=table.schema))
    status, found = examined()
    assert status == 1
    assert [one["cause"] for one in found["drift"]] == ["a change outside of a commit"]
    assert main(["doctor", uri]) == 1
    assert capsys.readouterr().out.endswith("out of order: see `omnigraph repair`\n")


def test_versions_that_are_missing_are_to_be_restored(
    uri: str, run: Callable[..., str], examined: Examined, capsys: pytest.CaptureFixture[str]
) -> None:
    run("mutate", "-e", ADD, "--uri", uri)
    min((person_table(uri) / "_versions").glob("*.manifest")).unlink()
    status, found = examined()
    assert (status, [one["cause"] for one in found["drift"]]) == (1, ["versions are missing"])
    assert main(["doctor", uri]) == 1
    assert capsys.readouterr().out.endswith("out of order: restore from a backup what cannot be read\n")


def test_maintenance_outside_omnigraph_is_distinguished(
    uri: str, run: Callable[..., str], examined: Examined, capsys: pytest.CaptureFixture[str]
) -> None:
    run("mutate", "-e", ADD, "--uri", uri)
    table = Tables().tip(Location(str(person_table(uri))))
    commit_staged(stage_indexes(table, [IndexSpec("age", "BTREE", "by_age")]))
    status, found = examined()
    assert status == 1
    assert [one["cause"] for one in found["drift"]] == ["maintenance"]
    assert main(["doctor", uri]) == 1
    assert capsys.readouterr().out.endswith("out of order: the next write to the table settles the drift\n")
    # The next writer takes it over, and then the index shows.
    run("mutate", "-e", ADD.replace("ada", "bo"), "--uri", uri)
    status, found = examined()
    assert status == 0
    (index,) = found["indexes"]
    assert (index["table_key"], index["name"], index["columns"]) == ("node:Person", "by_age", ["age"])
    assert (index["covered_fragments"], index["total_fragments"]) == (1, 2)


def test_a_removal_that_is_owed_is_found_and_recover_finishes_it(
    uri: str, run: Callable[..., str], examined: Examined, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("mutate", "-e", ADD, "--uri", uri)
    with graph.open(uri, read_only=True) as opened:
        smaller = opened.schema_source.replace("age: I32?", "")
    (tmp_path / "smaller.pg").write_text(smaller, "utf-8")
    point = failpoints.SCHEMA_APPLY_BEFORE_REMOVAL
    with failpoints.arm(point, failpoints.error(point)):
        run("schema", "apply", "--schema", str(tmp_path / "smaller.pg"), "--allow-data-loss", uri)
        status, found = examined()
    assert (status, [one["table_keys"] for one in found["removals"]]) == (1, [["node:Person"]])
    assert main(["doctor", uri]) == 1
    shown = capsys.readouterr().out
    assert "removal owed: node:Person: schema change " in shown
    assert shown.endswith("out of order: run `omnigraph recover` to remove dropped data\n")
    run("recover", uri)
    assert (examined()[0], examined()[1]["removals"]) == (0, [])


def test_forks_that_no_branch_shows_are_found(uri: str, run: Callable[..., str], examined: Examined) -> None:
    run("branch", "create", "--uri", uri, "work")
    run("mutate", "-e", ADD, "--uri", uri, "--branch", "work")
    assert examined()[0] == 0
    table = lance.dataset(str(person_table(uri)))
    table.create_branch("gone", (None, 1))
    knows = next(Path(uri, "edges").iterdir())
    lance.dataset(str(knows)).create_branch("work", (None, 1))
    status, found = examined()
    assert status == 1
    assert found["forks"] == [
        {"table_key": "edge:Knows", "branch": "work", "reason": "its branch does not show it"},
        {"table_key": "node:Person", "branch": "gone", "reason": "its branch is gone"},
    ]


def half_made(table: Path, branch: str) -> None:
    """Leave the files of a fork whose making was cut off before it was named."""
    lance.dataset(str(table)).create_branch(branch, (None, 1))
    (table / "_refs" / "branches" / f"{branch}.json").unlink()


def test_files_of_forks_and_branches_that_are_none_are_found(
    uri: str, run: Callable[..., str], examined: Examined, capsys: pytest.CaptureFixture[str]
) -> None:
    half_made(person_table(uri), "half")
    half_made(Path(uri, "__manifest"), "halved")
    status, found = examined()
    assert (status, found["ok"]) == (1, False)
    assert found["forks"] == [
        {"table_key": "node:Person", "branch": "half", "reason": "it was never finished, or half removed"},
        {
            "table_key": "manifest",
            "branch": "halved",
            "reason": "its branch was never finished, or half deleted",
        },
    ]
    assert main(["doctor", uri]) == 1
    output = capsys.readouterr().out
    assert "half a branch: halved: its branch was never finished, or half deleted\n" in output
    run("cleanup", uri, "--keep", "1", "--confirm")
    assert examined()[0] == 0


def test_dropped_types_are_reported_with_the_forks_that_are_left_of_them(
    uri: str,
    tmp_path: Path,
    run: Callable[..., str],
    examined: Examined,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")
    run("mutate", "-e", ADD, "--uri", uri)
    knows = next(Path(uri, "edges").iterdir())
    (tmp_path / "less.pg").write_text("node Person { handle: String @key  age: I32? }\n", encoding="utf-8")
    run("schema", "apply", uri, "--schema", str(tmp_path / "less.pg"))
    status, found = examined()
    assert (status, found["dropped"], found["forks"]) == (0, [{"table_key": "edge:Knows", "bytes": 0}], [])
    assert "dropped: edge:Knows with 0 bytes is kept for the past; see `omnigraph cleanup`\n" in run(
        "doctor", uri
    )
    lance.dataset(str(knows)).create_branch("gone", (None, 1))
    status, found = examined()
    assert status == 1
    assert found["forks"] == [
        {"table_key": "edge:Knows", "branch": "gone", "reason": "its branch is gone"},
    ]
    run("cleanup", uri, "--keep", "1", "--confirm")
    status, found = examined()
    assert (status, found["dropped"]) == (0, [])
    assert not knows.exists()


def test_tables_that_no_branch_ever_showed_are_reported(
    uri: str, run: Callable[..., str], examined: Examined
) -> None:
    orphan = Path(uri, "nodes", "0123456789abcdef")
    lance.write_dataset(pa.table({"id": ["a"]}), orphan)
    Path(uri, "nodes", "notes").mkdir()
    status, found = examined()
    assert (status, found["orphan_tables"]) == (0, [{"path": f"nodes/{orphan.name}", "removable": False}])
    assert f"orphan table, or one in creation: nodes/{orphan.name}: `omnigraph cleanup`" in run("doctor", uri)
    for at in orphan.rglob("*"):
        os.utime(at, (0, 0))
    status, found = examined()
    assert (status, found["orphan_tables"]) == (0, [{"path": f"nodes/{orphan.name}", "removable": True}])
    assert f"orphan table: nodes/{orphan.name}: no branch ever published this table" in run("doctor", uri)
    run("cleanup", uri, "--keep", "1", "--confirm")
    assert examined()[1]["orphan_tables"] == []


def test_indexes_of_a_branch_are_reported_with_it(
    uri: str, run: Callable[..., str], examined: Examined
) -> None:
    run("branch", "create", "--uri", uri, "work")
    run("mutate", "-e", ADD, "--uri", uri, "--branch", "work")
    run("optimize", uri, "--branch", "work")
    status, found = examined()
    assert [(one["table_key"], one["branch"], one["name"]) for one in found["indexes"]] == [
        ("node:Person", "work", "id_idx")
    ]
    assert "index:" not in run("doctor", uri), "of indexes on branches only those that lag are printed"
    run("mutate", "-e", ADD.replace("ada", "bo"), "--uri", uri, "--branch", "work")
    assert "index: id_idx on node:Person of branch work covers 1 of 2 fragments\n" in run("doctor", uri)
    assert examined()[0] == status == 0


def test_what_cannot_be_read_is_reported_and_hides_nothing_else(
    uri: str, run: Callable[..., str], examined: Examined, capsys: pytest.CaptureFixture[str]
) -> None:
    run("branch", "create", "--uri", uri, "work")
    run("mutate", "-e", ADD, "--uri", uri)
    knows = next(Path(uri, "edges").iterdir())
    lance.dataset(str(knows)).create_branch("gone", (None, 1))
    person = person_table(uri)
    shutil.rmtree(person)
    for at in Path(uri, "__manifest", "tree", "work", "_versions").iterdir():
        at.write_bytes(b"not a version")
    status, found = examined()
    assert (status, found["ok"]) == (1, False)
    assert [(one["branch"], one["table_key"]) for one in found["unread"]] == [
        ("work", None),
        ("main", "node:Person"),
    ]
    assert all(one["reason"] for one in found["unread"])
    assert [(one["table_key"], one["branch"]) for one in found["forks"]] == [("edge:Knows", "gone")]
    assert main(["doctor", uri]) == 1
    text = capsys.readouterr().out
    assert "cannot be read: node:Person on main: " in text
    assert "cannot be read: branch work: " in text
    assert "restore from a backup what cannot be read; see `omnigraph cleanup`\n" in text


def test_what_is_no_graph_is_reported(uri: str, refused: Callable[..., tuple[str, str]]) -> None:
    assert refused("doctor") == ("bad_request", "no graph addressed")
    assert refused("doctor", f"{uri}-elsewhere")[0] == "graph_not_found"
    assert refused("recover", f"{uri}-elsewhere", "--dry-run")[0] == "graph_not_found"


@pytest.mark.parametrize("rows_per_bucket", [edge_rules.ROWS_PER_BUCKET, 7])
def test_nodes_with_fewer_edges_than_their_minimum_are_listed(
    tmp_path: Path,
    run: Callable[..., str],
    run_json: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    rows_per_bucket: int,
) -> None:
    monkeypatch.setattr(edge_rules, "ROWS_PER_BUCKET", rows_per_bucket)
    uri = str(tmp_path / "teams.omni")
    schema = """
    node Person { handle: String @key }
    node Team { name: String @key }
    edge MemberOf: Person -> Team @card(2..)
    edge Knows: Person -> Person @card(0..1)
    """
    with graph.init(uri, schema=schema) as made:
        made.load([{"handle": f"p{n:02}"} for n in range(40)], type="Person", mode="append")
        made.load([{"name": "a"}, {"name": "b"}, {"name": "c"}], type="Team", mode="append")
        # Every third has enough, and no write can leave one with a single edge.
        ends = [(f"p{n:02}", team) for n in range(0, 40, 3) for team in "abc"[: 2 + n % 2]]
        made.load([{"from": a, "to": b} for a, b in ends], type="MemberOf", mode="append")
        made.branches.create("same")
        made.branches.create("other")
        made.load([{"handle": "zoe"}], type="Person", mode="append", branch="other")
    found = run_json("doctor", uri)
    few = [f"p{n:02}" for n in range(40) if n % 3]
    expected = {
        "branch": "main",
        "edge": "MemberOf",
        "node": "Person",
        "minimum": 2,
        "count": len(few),
        "nodes": 40,
        "examples": [{"id": name, "edges": 0} for name in few[:10]],
    }
    other = {**expected, "branch": "other", "count": len(few) + 1, "nodes": 41}
    assert (found["ok"], found["below_minimum"]) == (True, [expected, other])
    named = ", ".join(f"{name} (0)" for name in few[:10])
    line = f"below minimum: 26 of 40 Person have fewer than 2 MemberOf: {named}, ..."
    assert line in run("doctor", uri).splitlines()
