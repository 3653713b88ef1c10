"""A graph that is opened with a policy asks it before every write."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.graph import Graph
from omnigraph.graph_maintenance import GraphMaintenance
from omnigraph.history import Branches, Tags

SCHEMA = "node Person { handle: String @key  bio: String?  rank: F64? }\nedge Knows: Person -> Person\n"
WIDER = SCHEMA.replace("rank: F64?", "rank: F64?  age: I32?")
INSERT = 'query add() { insert Person { handle: "bo" } }'
ROWS = [{"handle": "cy"}]

STAGED = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE

GRAPH_ACTIONS = (
    "read, export, change, schema_apply, branch_create, branch_delete, branch_merge, invoke_query, admin"
)
BUNDLE = f"""
version: 1
groups: {{members: [act-ana], owners: [act-eve]}}
protected_branches: [main]
rules:
  - id: drafts
    allow: {{actors: {{group: members}}, actions: [change], branch_scope: unprotected}}
  - id: own
    allow: {{actors: {{group: owners}}, actions: [{GRAPH_ACTIONS}]}}
"""
POLICY = og.Policy.parse(BUNDLE)


def insert_in_block(graph: og.Graph, actor: str | None) -> None:
    with graph.write(actor=actor) as write:
        write.insert("Person", handle="bo")


class Writer(NamedTuple):
    """A public way to change a graph, and what it asks."""

    call: Callable[[og.Graph, str | None], object]
    question: str
    """As a denial has it."""


ON_MAIN = "'change' on branch 'main'"
WRITERS: dict[str, Writer] = {
    "mutate": Writer(lambda graph, actor: graph.mutate(INSERT, actor=actor), ON_MAIN),
    "write": Writer(insert_in_block, ON_MAIN),
    "load": Writer(lambda graph, actor: graph.load(ROWS, type="Person", mode="append", actor=actor), ON_MAIN),
    "embed": Writer(lambda graph, actor: graph.embed(actor=actor), ON_MAIN),
    "algorithms": Writer(
        lambda graph, actor: graph.algorithms.pagerank(write_to="Person.rank", actor=actor), ON_MAIN
    ),
    "apply_schema": Writer(
        lambda graph, actor: graph.apply_schema(WIDER, actor=actor), "'schema_apply' targeting branch 'main'"
    ),
    "branches.create": Writer(
        lambda graph, actor: graph.branches.create("new", from_="draft", actor=actor),
        "'branch_create' on branch 'draft' targeting branch 'new'",
    ),
    "tags.create": Writer(
        lambda graph, actor: graph.tags.create("v1", actor=actor),
        "'branch_create' on branch 'main' targeting branch 'v1'",
    ),
    "tags.delete": Writer(
        lambda graph, actor: graph.tags.delete("v0", actor=actor),
        "'branch_delete' targeting branch 'v0'",
    ),
    "branches.delete": Writer(
        lambda graph, actor: graph.branches.delete("draft", actor=actor),
        "'branch_delete' targeting branch 'draft'",
    ),
    "merge": Writer(
        lambda graph, actor: graph.merge("draft", actor=actor),
        "'branch_merge' on branch 'draft' targeting branch 'main'",
    ),
    "optimize": Writer(lambda graph, actor: graph.optimize(actor=actor), "'admin'"),
    "ensure_indices": Writer(lambda graph, actor: graph.ensure_indices(actor=actor), "'admin'"),
    "cleanup": Writer(lambda graph, actor: graph.cleanup(keep=1, actor=actor), "'admin'"),
    "repair": Writer(lambda graph, actor: graph.repair(confirm=True, actor=actor), "'admin'"),
}
MAINTENANCE = ("optimize", "ensure_indices", "cleanup", "repair")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph that denied writes leave as it is."""
    at = tmp_path_factory.mktemp("policy") / "g.omni"
    with og.init(at, schema=SCHEMA) as graph:
        graph.mutate('query add() { insert Person { handle: "ada" } }')
        graph.branches.create("draft")
        graph.tags.create("v0")
    return at


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A graph of one test."""
    og.init(tmp_path / "g.omni", schema=SCHEMA).close()
    return tmp_path / "g.omni"


def state(graph: og.Graph) -> object:
    return graph.branches.list(), graph.snapshot().commit, graph.snapshot("draft").commit, graph.schema_source


@pytest.mark.parametrize("name", WRITERS)
def test_a_denied_write_names_the_question_and_changes_nothing(name: str, place: Path) -> None:
    writer = WRITERS[name]
    with og.open(place, policy=POLICY) as graph:
        before = state(graph)
        with pytest.raises(errors.PolicyDenied) as denied:
            writer.call(graph, "act-ana")
        assert state(graph) == before
    assert denied.value.message == f"policy denied action {writer.question} for actor 'act-ana'"
    assert denied.value.status == 403
    assert denied.value.data()["actor"] == "act-ana"


@pytest.mark.parametrize("name", WRITERS)
def test_an_unknown_actor_may_write_nothing(name: str, place: Path) -> None:
    with og.open(place, policy=POLICY, actor="act-zed") as graph:
        with pytest.raises(errors.PolicyDenied, match="for unknown actor 'act-zed'"):
            WRITERS[name].call(graph, None)
        assert len(graph.query("query q() { match { $p: Person } return { $p.handle } }")) == 1


@pytest.mark.parametrize("name", [name for name in WRITERS if name not in MAINTENANCE])
def test_a_write_without_an_actor_is_unauthorized(name: str, place: Path) -> None:
    with og.open(place, policy=POLICY) as graph, pytest.raises(errors.Unauthorized, match="names no actor"):
        WRITERS[name].call(graph, None)


def test_maintenance_without_an_actor_is_the_operators(own: Path) -> None:
    with og.open(own, policy=POLICY) as graph:
        for name in MAINTENANCE:
            WRITERS[name].call(graph, None)


def test_an_allowed_actor_writes_in_every_way(own: Path) -> None:
    with og.open(own, policy=POLICY, actor="act-eve") as graph:
        for name in ("mutate", "write", "load", "apply_schema", "algorithms"):
            WRITERS[name].call(graph, None)
        graph.branches.create("draft")
        graph.mutate('query add() { insert Person { handle: "dee" } }', branch="draft")
        for name in ("merge", "branches.delete", *MAINTENANCE):
            WRITERS[name].call(graph, None)
        # The actor of the graph is the author of its commits.
        authors = {commit.actor for commit in graph.commits.list()[:-1]}
    assert authors == {"act-eve"}


def test_the_branch_decides_where_a_rule_is_about_branches(own: Path) -> None:
    with og.open(own) as graph:
        graph.branches.create("draft")
    with og.open(own, policy=POLICY, actor="act-ana") as graph:
        assert graph.mutate(INSERT, branch=" draft ").commit is not None
        for protected in ("main", " main "):
            with pytest.raises(errors.PolicyDenied, match="on branch 'main' for actor"):
                graph.mutate(INSERT, branch=protected)


def test_a_load_that_makes_its_branch_asks_for_that_too(own: Path) -> None:
    with og.open(own, policy=POLICY) as graph:
        with pytest.raises(
            errors.PolicyDenied, match="'branch_create' on branch 'main' targeting branch 'x'"
        ):
            graph.load(ROWS, type="Person", mode="append", branch="x", from_="main", actor="act-ana")
        assert graph.branches.list() == ["main"]
        graph.load(ROWS, type="Person", mode="append", branch="x", from_="main", actor="act-eve")
        assert graph.branches.list() == ["main", "x"]


def test_a_load_that_fails_removes_the_branch_that_its_actor_could_not_delete(own: Path) -> None:
    text = BUNDLE.replace("actions: [change], branch_scope: unprotected", "actions: [change, branch_create]")
    with og.open(own, policy=og.Policy.parse(text), actor="act-ana") as graph:
        with failpoints.arm(STAGED, failpoints.error(STAGED)), pytest.raises(errors.InternalError):
            graph.load(ROWS, type="Person", mode="append", branch="x", from_="main")
        assert graph.branches.list() == ["main"]
        with pytest.raises(errors.PolicyDenied):
            graph.branches.delete("x")


def test_a_merge_that_deletes_its_source_asks_for_both_before_it_merges(own: Path) -> None:
    text = BUNDLE.replace("actions: [change], branch_scope: unprotected", "actions: [branch_merge]")
    with og.open(own) as graph:
        graph.branches.create("draft")
        graph.mutate(INSERT, branch="draft")
    with og.open(own, policy=og.Policy.parse(text), actor="act-ana") as graph:
        with pytest.raises(errors.PolicyDenied, match="'branch_delete' targeting branch 'draft'"):
            graph.merge("draft", delete_branch=True)
        assert graph.merge("draft").commit is not None


def test_a_denial_comes_before_what_else_is_wrong(place: Path) -> None:
    """A schema cannot be applied beside another branch; who may not apply it does not learn that."""
    with og.open(place, policy=POLICY) as graph:
        with pytest.raises(errors.PolicyDenied):
            graph.apply_schema(WIDER, actor="act-ana")
        with pytest.raises(errors.SchemaApplyBlocked):
            graph.apply_schema(WIDER, actor="act-eve")
        with pytest.raises(errors.PolicyDenied):
            graph.branches.delete("missing", actor="act-ana")


def test_a_refreshed_graph_keeps_its_policy(place: Path) -> None:
    with og.open(place, policy=POLICY, actor="act-ana") as graph:
        graph.refresh()
        with pytest.raises(errors.PolicyDenied):
            graph.mutate(INSERT)


def test_what_reads_or_only_looks_asks_nothing(place: Path) -> None:
    with og.open(place, policy=POLICY, actor="act-zed") as graph:
        assert graph.snapshot().commit is not None
        assert graph.merge("draft", dry_run=True).conflicts == ()
        graph.cleanup(keep=1, dry_run=True)
        graph.repair()
        graph.plan_schema(WIDER)


def test_the_name_of_an_actor_is_checked_when_the_graph_is_opened(place: Path) -> None:
    with pytest.raises(errors.InvalidName, match="are omnigraph itself"):
        og.open(place, actor="omnigraph:recovery")


def test_a_graph_without_a_policy_allows_everything(own: Path) -> None:
    with og.open(own, actor="act-zed") as graph:
        done = graph.mutate(INSERT)
    assert done.commit is not None
    assert done.commit.actor == "act-zed"


def writing_methods(kind: type) -> Iterator[str]:
    tree = ast.parse(inspect.getsource(kind)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for one in tree.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            names = {node.attr for node in ast.walk(one) if isinstance(node, ast.Attribute)}
            if "_writing" in names:
                yield one.name


def test_every_public_method_that_writes_is_tried_here() -> None:
    found = {
        *writing_methods(Graph),
        *writing_methods(GraphMaintenance),
        *(f"branches.{name}" for name in writing_methods(Branches)),
        *(f"tags.{name}" for name in writing_methods(Tags)),
    }
    assert found - {"branches", "tags"} == WRITERS.keys()
