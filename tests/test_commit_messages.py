"""Messages of commits: every writer takes one, and nothing loses it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.engine.graph.lineage import LONGEST_MESSAGE

SCHEMA = "node Person { handle: String @key  age: I32? @index }\nedge Knows: Person -> Person\n"
WIDER = SCHEMA + "node Team { name: String @key }\n"
ADA = 'query q() { insert Person { handle: "ada", age: 36 } }'
TWO_TABLES = 'query q() { insert Person { handle: "ada" } insert Knows { from: "ada", to: "ada" } }'
BO = 'query q() { insert Person { handle: "bo" } }'
SAID = "Add Ada\n\nShe was missing: naïve, 日本 👩‍🔬."


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made:
        yield made


def write_block(graph: og.Graph) -> object:
    with graph.write(message=SAID) as tx:
        tx.insert("Person", handle="ada")
    return tx


def merge_a_branch(graph: og.Graph) -> object:
    graph.branches.create("work")
    graph.mutate(ADA, branch="work")
    return graph.merge("work", message=SAID)


def optimize_fragments(graph: og.Graph) -> object:
    for number in range(3):
        graph.mutate(f'query q() {{ insert Person {{ handle: "p{number}" }} }}')
    return graph.optimize(message=SAID)


WRITERS: dict[str, Callable[[og.Graph], object]] = {
    "mutate": lambda graph: graph.mutate(ADA, message=SAID),
    "mutate in a block": write_block,
    "load": lambda graph: graph.load([{"handle": "ada"}], type="Person", mode="append", message=SAID),
    "schema_apply": lambda graph: graph.apply_schema(WIDER, message=SAID),
    "merge": merge_a_branch,
    "optimize": optimize_fragments,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_every_writer_stores_the_message_with_its_commit(graph: og.Graph, writer: str) -> None:
    WRITERS[writer](graph)
    found = graph.commits.list()[0]
    assert (found.message, found.subject) == (SAID, "Add Ada")
    assert found.operation == writer.partition(" ")[0]
    assert found.is_upkeep is (writer == "optimize")
    with og.open(graph.uri, read_only=True) as other:
        assert other.commits.get(found.id) == found


def test_commits_without_a_message_have_none(graph: og.Graph) -> None:
    done = graph.mutate(ADA)
    assert done.commit is not None
    assert (done.commit.message, done.commit.subject) == (None, None)
    first = graph.commits.list()[-1]
    assert (first.message, first.operation) == (None, None)


def test_a_message_is_a_member_of_the_row_of_its_commit(graph: og.Graph) -> None:
    """One write of the manifest carries both; other readers skip members that they do not know."""
    done = graph.mutate(ADA, message=SAID, actor="ann")
    assert done.commit is not None
    rows = lance.dataset(f"{graph.uri}/__manifest").to_table(filter=f"object_id = '{done.commit.id}'")
    (row,) = rows.to_pylist()
    facts = json.loads(row["metadata"])
    assert facts == {
        "parent_commit_id": done.commit.parent,
        "actor_id": "ann",
        "created_at": done.commit.created_at,
        "message": SAID,
        "operation": "mutate",
    }


def test_the_message_of_an_interrupted_write_is_stored_by_recovery(graph: og.Graph) -> None:
    point = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(errors.RecoveryRequired):
        graph.mutate(ADA, message=SAID)
    graph.mutate(BO)
    recovered = graph.commits.list()[1]
    assert (recovered.message, recovered.operation) == (SAID, "mutate")
    assert recovered.actor == "omnigraph:recovery"
    assert not recovered.is_upkeep


def test_a_write_that_is_undone_leaves_a_commit_of_recovery(graph: og.Graph) -> None:
    point = failpoints.MUTATION_POST_TABLE_COMMIT
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(errors.RecoveryRequired):
        graph.mutate(TWO_TABLES, message=SAID)
    graph.mutate(BO)
    undone = graph.commits.list()[1:-1]
    assert {(one.message, one.operation, one.is_upkeep) for one in undone} == {(None, "recovery", True)}


def test_merges_keep_the_messages_of_branches_that_are_deleted(graph: og.Graph) -> None:
    graph.branches.create("work")
    graph.mutate(ADA, branch="work", message=SAID)
    graph.merge("work", delete_branch=True)
    state = graph._opened.load("main").state
    assert [one.message for one in state.merged.values()] == [SAID]


def test_a_copy_has_the_messages(graph: og.Graph, tmp_path: Path) -> None:
    graph.mutate(ADA, message=SAID)
    graph.copy_to(tmp_path / "copy.omni")
    with og.open(tmp_path / "copy.omni", read_only=True) as copy:
        assert copy.commits.list() == graph.commits.list()


def test_the_cached_state_has_the_messages(graph: og.Graph) -> None:
    """Beyond a few fragments a new process reads main from its cache."""
    for number in range(12):
        graph.mutate(f'query q() {{ insert Person {{ handle: "p{number}" }} }}', message=f"number {number}")
    with og.open(graph.uri, read_only=True) as other:
        assert [one.message for one in other.commits.list(limit=12)] == [
            f"number {number}" for number in reversed(range(12))
        ]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("  \n", "must not be blank"),
        ("a\x00b", r"must not contain '\\x00'"),
        ("a\ud800", "not a text that UTF-8 can hold"),
        ("x" * (LONGEST_MESSAGE + 1), "at most 10,000 characters, this one has 10,001"),
    ],
)
def test_a_bad_message_is_refused_before_anything_is_written(
    graph: og.Graph, message: str, reason: str
) -> None:
    before = graph.commits.list()
    with pytest.raises(errors.InvalidValue, match=reason):
        graph.mutate(ADA, message=message)
    assert graph.commits.list() == before
