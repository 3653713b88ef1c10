"""Algorithms on a stored graph: any part of it, any moment, and values as properties."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.cli.algorithm import app
from omnigraph.errors import BadRequest, BranchNotFound, LoadRejected, OmnigraphError, ReadOnlyGraph
from omnigraph.graph import Graph
from omnigraph.query.algorithms import solver
from omnigraph.query.algorithms.algorithm_request import AlgorithmOptions, Destination
from omnigraph.query.algorithms.calls import AlgorithmCalls
from omnigraph.query.read_cache import shared_cache

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = """
node Person {
  name: String @key
  rank: F64?
  team: I32?
  note: String?
  level: I32?
  @range(level, 0..2)
  place: Vector(2)?
  photo: Blob?
}
node City { name: String @key  visits: I64? }
edge Knows: Person -> Person { since: I32?  cost: F64? }
edge Lives: Person -> City
"""
PEOPLE = ["ada", "bo", "cy", "di"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Ada knows Bo, Bo Cy, Cy Ada; Di lives in Rome with Cy, and knows no one."""
    with og.init(tmp_path_factory.mktemp("algorithms") / "g.omni", schema=SCHEMA) as graph:
        with graph.write() as tx:
            # In an order that is not theirs.
            for name in reversed(PEOPLE):
                tx.insert("Person", name=name, note=f"{name}!", place=[1, 2], photo="base64:AAEC")
            tx.insert("City", name="rome")
            tx.insert("City", name="ada")
            for source, target, cost in (("ada", "bo", 1.0), ("bo", "cy", 1.0), ("cy", "ada", 5.0)):
                tx.insert_edge("Knows", source, target, cost=cost)
            tx.insert_edge("Lives", "cy", "rome")
            tx.insert_edge("Lives", "di", "rome")
        yield graph


def values(found: Any) -> dict[str, Any]:
    """What was found, by type and id."""
    assert found.columns == ["id", "type", "value"]
    return {f"{row['type']}:{row['id']}": row["value"] for row in found}


def people(found: Any) -> list[Any]:
    return [values(found)[f"Person:{name}"] for name in PEOPLE]


def test_all_nodes_have_a_value_in_the_order_of_type_and_id(filled: Graph) -> None:
    found = filled.algorithms.connected_components()
    assert found.tuples() == [
        ("ada", "City", 0),
        ("rome", "City", 1),
        ("ada", "Person", 1),
        ("bo", "Person", 1),
        ("cy", "Person", 1),
        ("di", "Person", 1),
    ]
    assert found.to_arrow().schema.field("value").type == pa.int64()
    assert (found.query_name, found.branch, found.engine, found.converged) == (
        "connected_components",
        "main",
        "local",
        True,
    )
    assert found.about()["rounds"] == found.rounds


def test_types_say_which_part_of_the_graph_counts(filled: Graph) -> None:
    algorithms = filled.algorithms
    assert values(algorithms.degree(edges="Knows")) == {
        "Person:ada": 2,
        "Person:bo": 2,
        "Person:cy": 2,
        "Person:di": 0,
    }
    assert people(algorithms.degree(edges=["lives"], direction="out")) == [0, 0, 1, 1]
    assert people(algorithms.triangle_count(nodes=["Person"])) == [1, 1, 1, 0]
    assert values(algorithms.connected_components(nodes="City")) == {"City:ada": 0, "City:rome": 1}
    assert people(algorithms.label_propagation(edges="Knows")) == [0, 0, 0, 1]
    assert sum(values(algorithms.pagerank()).values()) == pytest.approx(1)


def test_filters_say_which_rows_count(filled: Graph) -> None:
    algorithms = filled.algorithms
    cheap: Any = {"edges": "Knows", "where": {"Knows": "cost < 2"}}
    assert people(algorithms.degree(**cheap)) == [1, 2, 1, 0]
    assert people(algorithms.shortest_paths("ada", **cheap)) == [0, 1, 2, None]
    without_bo = algorithms.degree(edges="Knows", where={"Person": 'name != "bo"'})
    assert values(without_bo) == {"Person:ada": 1, "Person:cy": 1, "Person:di": 0}
    both: Any = {"Person": ['name != "bo"', 'name < "di"'], "edge:Knows": "cost is not null\ncost > 0.5"}
    assert values(algorithms.degree(edges="Knows", where=both)) == {"Person:ada": 1, "Person:cy": 1}
    named = algorithms.connected_components(edges="Lives", where={"City": 'name = "rome"'})
    assert "City:ada" not in values(named)
    assert values(named)["Person:di"] == values(named)["City:rome"]
    assert values(algorithms.degree(edges="Knows", where={"Person": 'name = "zoe"'})) == {}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"City": 'name = "rome"'}, "'City' is none of the types that are looked at"),
        ({"Person": "age > 3"}, "has no property `age`"),
        ({"Person": ""}, "a filter needs a comparison"),
        ({"Knows": "cost > 1 delete Knows where cost > 2"}, "is not one comparison"),
    ],
)
def test_a_filter_that_says_nothing_is_refused(filled: Graph, where: Any, message: str) -> None:
    with pytest.raises(OmnigraphError) as caught:
        filled.algorithms.degree(edges="Knows", where=where)
    assert message in str(caught.value)


def test_paths_are_counted_in_edges_or_weighed(filled: Graph) -> None:
    paths = filled.algorithms.shortest_paths
    assert people(paths("cy", edges="Knows")) == [1, 2, 0, None]
    assert people(paths("cy", edges="Knows", weight="cost")) == [5.0, 6.0, 0.0, None]
    assert people(paths("cy", edges="Knows", direction="in", weight="cost")) == [2.0, 1.0, 0.0, None]
    assert values(paths("rome", direction="both"))["Person:di"] == 1
    assert people(paths(["bo", "di"], edges="Knows")) == [2, 0, 1, 0]
    assert people(paths("Person:ada")) == [0, 1, 2, None]


def test_the_past_has_its_own_values(filled: Graph) -> None:
    before = filled.snapshot().id
    filled.branches.create("past")
    with filled.write("past") as tx:
        tx.delete("Person", ("name", "=", "bo"))
    now = filled.algorithms.degree(edges="Knows", branch="past")
    assert values(now) == {"Person:ada": 1, "Person:cy": 1, "Person:di": 0}
    then = filled.algorithms.degree(edges="Knows", commit=before)
    assert people(then) == [2, 2, 2, 0]
    assert (then.branch, then.snapshot, then.graph_commit_id) == (None, before, before)


def test_values_become_a_property_in_one_commit(filled: Graph) -> None:
    filled.branches.create("ranks")
    start = filled.snapshot("ranks")
    found = filled.algorithms.pagerank(edges="Knows", branch="ranks", write_to="Person.rank", actor="ann")
    written = found.written
    assert written is not None
    assert (written.type, written.property, written.branch, written.rows) == ("Person", "rank", "ranks", 4)
    assert written.commit is not None
    assert (written.commit.actor, written.commit.parent) == ("ann", start.id)
    rows = filled.snapshot("ranks").rows("Person").sort_by("name").to_pylist()
    assert [row["rank"] for row in rows] == people(found)
    assert [(row["id"], row["note"], row["place"]) for row in rows] == [
        (name, f"{name}!", [1.0, 2.0]) for name in PEOPLE
    ]
    changes = list(filled.diff(start, filled.snapshot("ranks")))
    assert {(change.op, tuple(change.changed)) for change in changes} == {("update", ("rank",))}
    assert len(changes) == 4


def test_values_that_are_there_already_make_no_commit(filled: Graph) -> None:
    filled.branches.create("again")
    how: Any = {"branch": "again", "write_to": "Person.team", "edges": "Knows"}
    first = filled.algorithms.connected_components(**how).written
    assert first is not None
    assert first.commit is not None
    second = filled.algorithms.connected_components(**how).written
    assert second is not None
    assert (second.rows, second.commit) == (0, None)
    assert filled.snapshot("again").id == first.commit.id


def test_only_nodes_with_another_value_are_written_and_null_is_one(filled: Graph) -> None:
    filled.branches.create("far")
    how: Any = {"branch": "far", "write_to": "Person.team", "edges": "Knows"}
    filled.algorithms.shortest_paths("Person:ada", **how)
    again = filled.algorithms.shortest_paths(
        "Person:ada", **{**how, "edges": ["Knows", "Lives"], "direction": "both"}
    )
    assert again.written is not None
    assert again.written.rows == 2
    rows = filled.snapshot("far").rows("Person", columns=["name", "team"]).sort_by("name")
    assert rows.column("team").to_pylist() == people(again) == [0, 1, 1, 3]


def test_a_branch_can_be_made_for_the_values(filled: Graph) -> None:
    found = filled.algorithms.degree(
        commit=filled.snapshot().id, write_to="City.visits", onto="visits", from_="main", direction="in"
    )
    assert found.written is not None
    assert found.written.branch_created
    rows = filled.snapshot("visits").rows("City", columns=["name", "visits"]).sort_by("name")
    assert rows.column("visits").to_pylist() == [0, 2]


def test_a_branch_is_made_even_when_it_has_the_values_already(filled: Graph) -> None:
    how: Any = {"write_to": "City.visits", "from_": "main", "engine": "local"}
    filled.algorithms.degree(**how, onto="one", direction="in")
    again = filled.algorithms.degree(**{**how, "from_": "one"}, branch="one", onto="two", direction="in")
    assert again.written is not None
    assert (again.written.rows, again.written.commit, again.written.branch_created) == (0, None, True)
    assert filled.snapshot("two").rows("City").equals(filled.snapshot("one").rows("City"))


def test_a_branch_that_is_missing_is_reported_before_anything_is_computed(filled: Graph) -> None:
    with pytest.raises(BranchNotFound, match="'nowhere'"):
        filled.algorithms.shortest_paths("missing", write_to="Person.team", onto="nowhere")


def test_nodes_of_another_moment_are_left_alone(filled: Graph) -> None:
    then = filled.snapshot().id
    filled.branches.create("later")
    with filled.write("later") as tx:
        tx.insert("City", name="oslo", visits=7)
    filled.algorithms.degree(commit=then, write_to="City.visits", onto="later")
    rows = filled.snapshot("later").rows("City", columns=["name", "visits"]).sort_by("name")
    assert rows.column("visits").to_pylist() == [0, 7, 2]


def test_a_change_made_meanwhile_is_kept(filled: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    filled.branches.create("busy")
    read, overtaken = solver._spool_batches, list[bool]()

    def overtake(*given: Any) -> int:
        rows = read(*given)
        if not overtaken:
            overtaken.append(True)
            with filled.write("busy") as tx:
                tx.update("Person", ("name", "=", "bo"), note="new")
        return rows

    monkeypatch.setattr(solver, "_spool_batches", overtake)
    filled.algorithms.degree(edges="Knows", branch="busy", write_to="Person.team")
    (row,) = filled.query(
        'query q() { match { $p: Person  $p.name = "bo" } return { $p.note, $p.team } }', branch="busy"
    ).tuples()
    assert row == ("new", 2)


def test_commits_to_other_tables_do_not_disturb_the_writing_of_values(
    filled: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.branches.create("crowded")
    read, reads = solver._spool_batches, list[int]()

    def overtake(*given: Any) -> int:
        reads.append(read(*given))
        filled.mutate(f'query q() {{ insert City {{ name: "c{len(reads)}" }} }}', branch="crowded")
        return reads[-1]

    monkeypatch.setattr(solver, "_spool_batches", overtake)
    filled.algorithms.degree(edges="Knows", branch="crowded", write_to="Person.team")
    assert len(reads) == 1
    rows = filled.snapshot("crowded").rows("Person", columns=["name", "team"]).sort_by("name")
    assert rows.column("team").to_pylist() == [2, 2, 2, 0]


def test_rules_of_the_schema_hold_for_values(filled: Graph) -> None:
    with pytest.raises(LoadRejected, match="level"):
        filled.algorithms.shortest_paths("di", direction="both", branch="main", write_to="Person.level")


def test_a_value_that_is_too_large_for_its_property_is_refused() -> None:
    to = Destination("Person", "team", "main", None, None)
    with pytest.raises(BadRequest) as caught:
        solver._to_stored_type(pa.chunked_array([[1, 2**40]]), pa.int32(), to)
    assert caught.value.message == "a value does not fit 'Person.team', which is int32"


REFUSED: list[tuple[Callable[[Graph], object], str, str]] = [
    (lambda g: g.algorithms.degree(edges="Likes"), "'Likes' is not an edge type", "it may be: Knows, Lives"),
    (
        lambda g: g.algorithms.degree(edges="Person"),
        "'Person' is a node type, not an edge type",
        "it may be: Knows, Lives",
    ),
    (
        lambda g: g.algorithms.degree(nodes="Knows"),
        "'Knows' is an edge type, not a node type",
        "it may be: City, Person",
    ),
    (
        lambda g: g.algorithms.degree(nodes="Person", edges="Lives"),
        "edges 'Lives' have 'City' at an end, which is not among the nodes",
        "add 'City', or leave the node types out",
    ),
    (
        lambda g: g.algorithms.shortest_paths("zoe", nodes="Person"),
        "there is no node 'zoe' among: Person",
        "name a node by its id",
    ),
    (
        lambda g: g.algorithms.shortest_paths("bo", weight="cost"),
        "edge type 'Lives' has no property 'cost' to weigh its edges by",
        "choose other edges, or no weight",
    ),
    (
        lambda g: g.algorithms.shortest_paths("bo", edges="Knows", weight="since"),
        "an edge 'Knows' has no 'since'",
        "give every edge a 'since', or leave the weight out",
    ),
    (
        lambda g: g.algorithms.pagerank(write_to="Person.team"),
        "'Person.team' is I32? and cannot hold values of type F64",
        "it may be: rank",
    ),
    (
        lambda g: g.algorithms.degree(write_to="Person.note"),
        "'Person.note' is String? and cannot hold values of type I64",
        "it may be: level, rank, team",
    ),
    (
        lambda g: g.algorithms.degree(write_to="Person.name"),
        "'name' is the key of 'Person' and tells nodes apart",
        "it may be: level, rank, team",
    ),
    (
        lambda g: g.algorithms.pagerank(write_to="City.rank"),
        "'City' has no property 'rank'",
        "add a property like `rank: F64?`",
    ),
    (
        lambda g: g.algorithms.degree(write_to="Knows.since"),
        "there is no node type 'Knows' to write to",
        "it may be: City, Person",
    ),
    (
        lambda g: g.algorithms.degree(write_to="rank"),
        "'rank' is not a property of a type",
        "write it as TYPE.PROPERTY, such as Person.rank",
    ),
    (
        lambda g: g.algorithms.degree(write_to="Person.team", version=1),
        "what a past moment tells is written to a branch of today",
        "name the branch with `onto` (--onto)",
    ),
    (
        lambda g: g.algorithms.degree(onto="draft"),
        "a branch to write to needs a property",
        'name it, as in `write_to="Person.rank"`',
    ),
    (
        lambda g: g.algorithms.degree(engine="fast"),  # type: ignore[arg-type]
        "there is no engine 'fast'",
        "choose one of: auto, local, spark",
    ),
]


@pytest.mark.parametrize(("ask", "message", "remedy"), REFUSED, ids=[case[1] for case in REFUSED])
def test_what_cannot_be_is_refused_with_a_remedy(
    filled: Graph, ask: Callable[[Graph], object], message: str, remedy: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        ask(filled)
    assert (caught.value.message, caught.value.remedy) == (message, remedy)


def test_a_graph_open_for_reading_computes_and_does_not_write(filled: Graph) -> None:
    with og.open(filled.uri, read_only=True) as graph:
        assert people(graph.algorithms.triangle_count()) == [1, 1, 1, 0]
        with pytest.raises(ReadOnlyGraph):
            graph.algorithms.degree(write_to="Person.team")
    with pytest.raises(OmnigraphError, match="is closed"):
        graph.algorithms.degree()


def test_a_schema_without_edges_has_nodes_that_stand_alone(tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", schema="node Person { name: String @key }") as graph:
        assert graph.algorithms.pagerank().rows() == []
        with graph.write() as tx:
            tx.insert("Person", name="ada")
        assert graph.algorithms.pagerank().tuples() == [("ada", "Person", 1.0)]
        assert graph.algorithms.triangle_count().tuples() == [("ada", "Person", 0)]
        assert graph.algorithms.shortest_paths("ada", weight="cost").tuples() == [("ada", "Person", 0.0)]


def test_values_stay_the_same_while_rows_move(filled: Graph) -> None:
    filled.branches.create("moving")
    before = filled.algorithms.pagerank(branch="moving").to_arrow()
    with filled.write("moving") as tx:
        tx.update("Person", ("name", "=", "ada"), note="moved")
    grown = filled.algorithms.pagerank(branch="moving").to_arrow()
    shared_cache().forget()
    rebuilt = filled.algorithms.pagerank(branch="moving").to_arrow()
    assert grown.equals(before)
    assert rebuilt.equals(before)


def test_the_examples_of_the_page_do_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    sessions = re.findall(r"^```pycon\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    test = doctest.DocTestParser().get_doctest("\n".join(sessions), {}, "algorithms.md", None, 0)
    report: list[str] = []
    done = doctest.DocTestRunner().run(test, out=report.append)
    assert (done.failed, done.attempted) == (0, 9), "".join(report)


def test_the_page_names_every_algorithm_and_every_argument() -> None:
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    calls = [name for name in vars(AlgorithmCalls) if not name.startswith("_")]
    assert len(calls) == len(app.registered_commands)
    for name in calls:
        assert f"`{name}(" in page
        assert f"`{name.replace('_', '-')}`" in page
    for argument in AlgorithmOptions.__annotations__:
        assert f"`{argument}`" in page
