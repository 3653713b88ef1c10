"""`omnigraph log`, `show` and `status`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.lanes import draw_lanes
from omnigraph.engine.graph.lineage import Commit, sort_children_first

Run = Callable[..., str]

ADD = 'query q() {{ insert Person {{ handle: "{0}", age: {1} }} }}'


def add(graph: og.Graph, name: str, age: int = 1, **how: Any) -> str:
    done = graph.mutate(ADD.format(name, age), **how)
    assert done.commit is not None
    return done.commit.id


@pytest.fixture
def forked(uri: str) -> list[str]:
    """The ids of the commits, oldest first, of a graph with a branch that was merged and another one."""
    with og.open(uri) as graph:
        ids = [graph.commits.list()[0].id, add(graph, "ada", actor="ann", message="Add Ada\n\nAt last.")]
        graph.branches.create("work")
        ids.append(add(graph, "bo", branch="work", message="Add Bo"))
        ids.append(add(graph, "cy"))
        merged = graph.merge("work", message="Take in work")
        assert merged.commit is not None
        ids.append(merged.commit.id)
        graph.branches.create("more")
        ids.append(add(graph, "di", branch="more"))
    return ids


def test_a_log_has_time_actor_message_and_counts(uri: str, forked: list[str], run: Run) -> None:
    lines = run("log", uri).splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf"{forked[4]}  {time}  -  \(main\)  \[merge\]  Take in work  Person \+1", lines[0])
    assert re.fullmatch(rf"{forked[3]}  {time}  -  Person \+1", lines[1])
    assert re.fullmatch(rf"{forked[1]}  {time}  ann  Add Ada  Person \+1", lines[2])
    assert re.fullmatch(rf"{forked[0]}  {time}  -", lines[3])
    assert len(lines) == 4
    assert run("log", uri, "--limit", "1").splitlines() == lines[:1]
    assert run("log", uri, "--actor", "ann").splitlines() == lines[2:3]
    assert run("log", uri, "--actor", "bob") == "no commits\n"
    assert "Person" not in run("log", uri, "--no-stat")


def test_a_log_of_all_branches_draws_their_lines(uri: str, forked: list[str], run: Run) -> None:
    drawn = [re.sub(r"  .*", "", line) for line in run("log", uri, "--graph").splitlines()]
    assert drawn == [
        f"* {forked[5]}",
        f"* {forked[4]}",
        "|\\",
        f"* | {forked[3]}",
        f"| * {forked[2]}",
        "|/",
        f"* {forked[1]}",
        f"* {forked[0]}",
    ]
    plain = [line.split()[0] for line in run("log", uri, "--all").splitlines()]
    assert plain == [forked[at] for at in (5, 4, 3, 2, 1, 0)]


def test_a_log_as_json(uri: str, forked: list[str], run_json: Callable[..., Any]) -> None:
    newest, *_, first = run_json("log", uri)["commits"]
    assert newest["graph_commit_id"] == forked[4]
    assert newest["changes"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert (newest["message"], newest["operation"]) == ("Take in work", "merge")
    assert (newest["upkeep"], newest["branches"]) == (False, ["main"])
    assert (first["changes"], first["message"]) == (None, None)


def test_upkeep_is_marked(uri: str, run: Run) -> None:
    with og.open(uri) as graph:
        for number in range(3):
            add(graph, f"p{number}")
        graph.optimize()
    assert "[upkeep]" in run("log", uri).splitlines()[0]
    assert run("log", uri).count("[upkeep]") == 1


def test_a_commit_is_shown_with_its_changes(
    uri: str, forked: list[str], run: Run, run_json: Callable[..., Any]
) -> None:
    text = run("show", forked[1], "--store", uri)
    assert text.startswith(f"commit: {forked[1]}\nbranch: main\nparent: {forked[0]}\nactor: ann\ntime: 2")
    assert "\n\n    Add Ada\n    \n    At last.\n\n" in text
    assert text.endswith(
        "node:Person: 1 inserted, 0 updated, 0 deleted\n+ node Person ada\n    handle: ada\n    age: 1\n"
    )
    assert run("show", forked[1], "--store", uri, "--stat").endswith("1 inserted, 0 updated, 0 deleted\n")
    found = run_json("show", forked[1], "--store", uri)
    assert found["stats"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert [one["id"] for one in found["changes"]] == ["ada"]
    assert run("show", forked[0], "--store", uri).endswith("no changes\n")


def test_shown_changes_are_limited(uri: str, run: Run) -> None:
    with og.open(uri) as graph:
        done = graph.load([{"handle": name} for name in "abc"], type="Person", mode="append")
    assert done.commit is not None
    text = run("show", done.commit.id, "--store", uri, "--limit", "1")
    assert text.endswith("... and 2 more changes; --limit prints more\n")


def test_status_shows_a_branch_at_a_glance(uri: str, forked: list[str], run: Run) -> None:
    with og.open(uri) as graph:
        found = graph.status("more")
        head = graph.commits.get(forked[5])
    assert (found.head, found.commits, found.rows["node:Person"]) == (head, 5, 4)
    assert [(one.name, one.ahead, one.behind) for one in found.branches] == [("more", 1, 0), ("work", 1, 2)]
    lines = run("status", uri).splitlines()
    assert lines[0] == f"graph: {uri}"
    assert lines[1] == "on branch main, 4 commits"
    assert lines[2].startswith(f"newest: {forked[4]}  2")
    assert lines[2].endswith("  Take in work")
    assert "  node:Person: 3 rows" in lines
    assert lines[-2:] == ["branch more: 1 ahead of main, 0 behind", "branch work: 1 ahead of main, 2 behind"]


def test_changes_can_be_counted_only(uri: str, forked: list[str], run: Run) -> None:
    text = run("changes", "--stat", "--uri", uri)
    assert text.count("  node:Person: 1 inserted, 0 updated, 0 deleted\n") == 3
    assert "handle" not in text


def test_lines_of_a_graph_need_all_commits(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    from omnigraph.cli.main import main

    assert main(["log", uri, "--graph", "--actor", "ann"]) == 2
    assert "leave --actor out" in capsys.readouterr().err


def commit(name: str, created_at: int, *parents: str) -> Commit:
    parent, merged = (*parents, None, None)[:2]
    return Commit(name, "main", 1, created_at, parent, merged)


def test_no_commit_comes_before_one_made_from_it() -> None:
    """The clock of the host that merged was behind."""
    found = [commit("a", 1), commit("b", 90, "a"), commit("c", 5, "a"), commit("m", 6, "c", "b")]
    assert [one.id for one in sort_children_first({one.id: one for one in found})] == ["m", "b", "c", "a"]


def test_lanes_that_wait_for_one_commit_meet_above_it() -> None:
    found = [commit("z", 5, "b"), commit("q", 4, "b"), commit("m", 3, "b"), commit("b", 2)]
    assert draw_lanes(found) == [([], "*"), ([], "| *"), ([], "| | *"), (["|//"], "*")]


def test_blame_lists_the_commits_that_changed_an_entity(
    uri: str, run: Run, run_json: Callable[..., Any]
) -> None:
    with og.open(uri) as graph:
        first = add(graph, "ada", actor="ann", message="Add Ada")
        add(graph, "bo")
        done = graph.mutate('query q() { update Person set { age: 2 } where handle = "ada" }')
        assert done.commit is not None
    lines = run("blame", "Person", "ada", "--store", uri).splitlines()
    time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(rf"{done.commit.id}  {time}  -  \[mutate\]", lines[0])
    assert lines[1:3] == ["  ~ node Person ada", "      age: 1 -> 2"]
    assert re.fullmatch(rf"{first}  {time}  ann  \[mutate\]  Add Ada", lines[3])
    assert lines[4] == "  + node Person ada"
    assert run("blame", "Person", "ada", "-n", "1", "--store", uri).splitlines() == lines[:3]
    assert run("blame", "Person", "missing", "--store", uri) == "no commits\n"
    found = run_json("blame", "Person", "ada", "--store", uri)
    newest, oldest = found["commits"]
    assert (newest["graph_commit_id"], newest["change"]["changed"]) == (done.commit.id, ["age"])
    assert newest["change"]["before"]["properties"]["age"] == 1
    assert (oldest["actor_id"], oldest["change"]["op"], found["reclaimed"]) == ("ann", "insert", False)
