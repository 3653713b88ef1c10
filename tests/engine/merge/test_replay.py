"""Revert, cherry-pick and reset: new commits that undo, repeat or restore older ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.engine.changes import comparison
from omnigraph.engine.graph.lineage import LONGEST_MESSAGE

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
node Team { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made:
        people = [{"name": name, "age": 10} for name in ("ada", "bo", "cy")]
        knows = [{"src": "ada", "dst": "bo"}]
        made.load({"Person": people, "Knows": knows}, mode="append", message="Begin")
        yield made


@pytest.fixture(params=["in memory", "in buckets"])
def size(request: pytest.FixtureRequest) -> Iterator[str]:
    """Small changes, and the way that very large ones take."""
    if request.param == "in memory":
        yield request.param
        return
    with patch.object(comparison, "LARGE_CHANGE", -1):
        yield request.param


def mutate(graph: og.Graph, text: str, branch: str = "main") -> str:
    done = graph.mutate(f"query q() {{ {text} }}", branch=branch)
    assert done.commit is not None
    return done.commit.id


def content(graph: og.Graph, branch: str = "main") -> dict[str, list[tuple[object, ...]]]:
    moment = graph.snapshot(branch)
    found = {}
    for key in moment.tables:
        rows = moment.rows(key).to_pylist()
        found[key] = sorted((tuple(row.values()) for row in rows), key=repr)
    return found


@pytest.mark.usefixtures("size")
@pytest.mark.parametrize(
    "change",
    [
        'insert Person { name: "di" }  insert Team { name: "new" }',
        'update Person set { age: 99 } where name = "ada"',
        'delete Person where name = "ada"',
        'insert Knows { from: "bo", to: "cy", since: 3 }',
    ],
)
def test_a_revert_takes_a_commit_back_and_leaves_later_ones(graph: og.Graph, change: str) -> None:
    before = content(graph)
    wrong = mutate(graph, change)
    mutate(graph, 'insert Team { name: "later" }')
    done = graph.revert(wrong)
    assert done.commit is not None
    assert done.commit.operation == "revert"
    assert done.commit.message == f'Revert "{wrong}"\n\nThis reverts commit {wrong}.'
    assert (done.source, done.target, done.outcome.value) == (wrong, "main", "merged")
    after = content(graph)
    assert [row[1] for row in after["node:Team"]] == ["later"]
    assert {**after, "node:Team": []} == {**before, "node:Team": []}
    assert graph.show(done.commit).stat() == done.changes
    again = graph.revert(wrong)
    assert (again.commit, again.outcome.value) == (None, "already_up_to_date")


def test_a_reverted_revert_brings_the_change_back(graph: og.Graph) -> None:
    change = mutate(graph, 'update Person set { age: 99 } where name = "ada"')
    after = content(graph)
    undone = graph.revert(change, message="Not yet")
    assert undone.commit is not None
    assert undone.commit.message == "Not yet"
    done = graph.revert(undone.commit)
    assert done.commit is not None
    assert done.commit.subject == 'Revert "Not yet"'
    assert content(graph) == after


def test_what_was_changed_again_since_conflicts(graph: og.Graph) -> None:
    wrong = mutate(graph, 'update Person set { age: 99 } where name = "ada"')
    mutate(graph, 'update Person set { age: 50 } where name = "ada"')
    before = graph.commits.list()
    with pytest.raises(errors.MergeConflicts) as caught:
        graph.revert(wrong)
    assert f"merging 'revert of {wrong}' into 'main' has 1 conflict" in caught.value.message
    assert caught.value.remedy == "decide with --strategy ours or theirs, or change the branch"
    assert graph.commits.list() == before
    graph.revert(wrong, strategy="theirs")
    assert graph.query('query q() { match { $p: Person { name: "ada" } } return { $p.age } }').scalar() == 10


def test_properties_can_be_reverted_one_by_one(graph: og.Graph) -> None:
    wrong = mutate(graph, 'update Person set { age: 99 } where name = "ada"')
    mutate(graph, 'update Person set { city: "Rome" } where name = "ada"')
    with pytest.raises(errors.MergeConflicts, match="1 conflict"):
        graph.revert(wrong)
    graph.revert(wrong, granularity="property")
    query = 'query q() { match { $p: Person { name: "ada" } } return { $p.age, $p.city } }'
    assert graph.query(query).rows() == [{"p.age": 10, "p.city": "Rome"}]


def test_a_revert_checks_the_rules(graph: og.Graph) -> None:
    made = mutate(graph, 'insert Person { name: "di" }')
    mutate(graph, 'insert Knows { from: "di", to: "cy" }')
    with pytest.raises(errors.MergeConflicts) as caught:
        graph.revert(made)
    assert [one.kind.value for one in caught.value.conflicts] == ["orphan_edge"]


@pytest.mark.usefixtures("size")
def test_a_cherry_pick_takes_in_one_commit_of_another_branch(graph: og.Graph) -> None:
    graph.branches.create("work")
    mutate(graph, 'insert Person { name: "no" }', "work")
    graph.mutate(
        'query q() { update Person set { age: 77 } where name = "bo"  insert Person { name: "yes" } }',
        branch="work",
        message="The one that is wanted",
    )
    wanted = graph.commits.list("work")[0]
    mutate(graph, 'insert Person { name: "own" }')
    done = graph.cherry_pick(wanted)
    assert done.commit is not None
    assert done.commit.operation == "cherry_pick"
    assert done.commit.message == f"The one that is wanted\n\n(cherry picked from commit {wanted.id})"
    assert done.commit.merged_parent is None
    people = graph.query("query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }")
    assert [tuple(row.values()) for row in people.rows()] == [
        ("ada", 10),
        ("bo", 77),
        ("cy", 10),
        ("own", None),
        ("yes", None),
    ]
    graph.branches.delete("work")  # nothing of it is needed
    assert graph.snapshot().tables["node:Person"].branch == "main"


def test_a_cherry_pick_onto_a_branch_without_tables_of_its_own(graph: og.Graph) -> None:
    graph.branches.create("work")
    wanted = mutate(graph, 'insert Person { name: "di" }')
    mutate(graph, 'insert Person { name: "eve" }')
    done = graph.cherry_pick(wanted, "work")
    assert {key: one.inserted for key, one in done.changes.items()} == {"node:Person": 1}
    assert graph.snapshot("work").tables["node:Person"].rows == 4


def test_messages_that_are_too_long_to_quote_are_left_out(graph: og.Graph) -> None:
    long = graph.load({"Team": [{"name": "new"}]}, mode="append", message="x" * LONGEST_MESSAGE).commit
    assert long is not None
    undone = graph.revert(long.id).commit
    again = graph.cherry_pick(long.id).commit
    assert undone is not None
    assert again is not None
    assert undone.message == f"This reverts commit {long.id}."
    assert again.message == f"(cherry picked from commit {long.id})"


@pytest.mark.usefixtures("size")
def test_a_reset_restores_older_content_in_a_new_commit(graph: og.Graph) -> None:
    before, good = content(graph), graph.commits.list()[0]
    mutate(graph, 'delete Person where name = "ada"')
    mutate(graph, 'insert Team { name: "new" }  update Person set { age: 1 } where name = "bo"')
    history = graph.commits.list()
    done = graph.reset(good)
    assert done.commit is not None
    assert (done.commit.operation, done.commit.message) == ("reset", f"Reset to {good.id}")
    assert content(graph) == before
    assert graph.commits.list()[1:] == history
    assert graph.reset(good.time).commit is None
    graph.reset(history[0].id, message="Forward again")
    assert graph.snapshot().tables["node:Team"].rows == 1


def test_a_reset_takes_the_content_of_another_branch(graph: og.Graph) -> None:
    graph.branches.create("work")
    mutate(graph, 'insert Person { name: "di" }', "work")
    mutate(graph, 'insert Person { name: "gone" }')
    graph.reset("work")
    assert content(graph) == content(graph, "work")


def test_the_first_commit_cannot_be_reverted(graph: og.Graph) -> None:
    first = graph.commits.list()[-1]
    with pytest.raises(errors.BadRequest, match="cannot be reverted: it is the first one"):
        graph.revert(first)
    with pytest.raises(errors.CommitNotFound):
        graph.cherry_pick("0" * 26)


def test_commits_of_another_schema_are_refused(graph: og.Graph) -> None:
    old = mutate(graph, 'insert Person { name: "di" }')
    graph.apply_schema(SCHEMA.replace("city: String?", "city: String?  more: I32?"))
    for run in (graph.revert, graph.cherry_pick, graph.reset):
        with pytest.raises(errors.Conflict, match="has another schema than branch 'main' has now"):
            run(old)


def test_content_that_cleanup_removed_cannot_be_restored(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_CLEANUP_MIN_AGE", "0")
    old = mutate(graph, 'insert Person { name: "di" }')
    for number in range(3):
        mutate(graph, f'insert Person {{ name: "p{number}" }}')
    graph.cleanup(keep=1)
    with pytest.raises(errors.HistoricalVersionReclaimed):
        graph.reset(old)
