"""How many requests of an operation in a bucket follow one another: far from a store, they are what it takes.

`critical_path.json` holds the numbers; `OMNIGRAPH_UPDATE_GOLDEN=1` writes those of this run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from omnigraph import Graph, init
from omnigraph import open as open_graph
from omnigraph.storage.concurrency import Together
from omnigraph.storage.location import Location
from omnigraph.storage.stores import open_store
from tests.storage.conftest import s3_server, use_s3
from tests.storage.critical_path import measure_critical_path

pytestmark = pytest.mark.s3

GOLDEN = Path(__file__).with_name("critical_path.json")
UPDATE = bool(os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"))

SCHEMA = """
node Person { name: String @key  age: I32? }
node Log { text: String }
edge Knows: Person -> Person
"""
ALL_PEOPLE = "query q() { match { $p: Person } return { $p.name, $p.age } }"


@dataclass(frozen=True, slots=True)
class Scene:
    """A graph in a bucket that was written to and read before, and another process beside it."""

    at: Location
    graph: Graph
    other: Graph

    def write(self, statements: str, branch: str = "main") -> None:
        self.graph.mutate(f"query q() {{ {statements} }}", branch=branch)


def add_log(here: Scene) -> None:
    here.write('insert Log { text: "x" }')


def add_person(here: Scene) -> None:
    here.write('insert Person { name: "new" }')


def update_person(here: Scene) -> None:
    here.write('update Person set { age: 7 } where name = "p1"')


def add_to_two_tables(here: Scene) -> None:
    here.write('insert Log { text: "x" }  insert Person { name: "newer" }')


def read_after_another_process_wrote(here: Scene) -> None:
    here.graph.query(ALL_PEOPLE)


def create_branch(here: Scene) -> None:
    here.graph.branches.create("draft")


def write_first_to_branch(here: Scene) -> None:
    here.write(" ".join(f'insert Person {{ name: "d{number}" }}' for number in range(10)), "draft")


def write_again_to_branch(here: Scene) -> None:
    here.write('insert Log { text: "x" }', "draft-of-others")


def merge_ten_rows(here: Scene) -> None:
    here.graph.merge("draft")


def delete_branch(here: Scene) -> None:
    here.graph.branches.delete("draft")


def open_again(here: Scene) -> None:
    open_graph(here.at.uri)


# In this order: a branch that is created is written to, merged and deleted next.
OPERATIONS: dict[str, Callable[[Scene], None]] = {
    operation.__name__: operation
    for operation in (
        add_log,
        add_person,
        update_person,
        add_to_two_tables,
        read_after_another_process_wrote,
        create_branch,
        write_first_to_branch,
        merge_ten_rows,
        delete_branch,
        write_again_to_branch,
        open_again,
    )
}


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """A server of its own: no other requests are counted."""
    with pytest.MonkeyPatch.context() as patch, s3_server() as endpoint:
        at = use_s3(endpoint, patch)
        graph = init(at.uri, schema=SCHEMA)
        here = Scene(at, graph, open_graph(at.uri))
        here.write(" ".join(f'insert Person {{ name: "p{number}" }}' for number in range(10)))
        graph.branches.create("draft-of-others")
        for branch in ("main", "main", "draft-of-others", "draft-of-others"):
            here.write('insert Log { text: "x" }  insert Person { name: "p0" }', branch)
        graph.query(ALL_PEOPLE)
        yield here


def test_no_operation_waits_for_more_requests_one_after_another_than_recorded(scene: Scene) -> None:
    found = {}
    for name, operation in OPERATIONS.items():
        if operation is read_after_another_process_wrote:
            scene.other.mutate('query q() { insert Person { name: "another" } }')
        with measure_critical_path() as path:
            operation(scene)
        found[name] = path.length
    if UPDATE:
        GOLDEN.write_text(json.dumps(found, indent=2) + "\n")
    recorded = json.loads(GOLDEN.read_text())
    assert found.keys() == recorded.keys()
    risen = {name: (recorded[name], count) for name, count in found.items() if count > recorded[name]}
    assert not risen, "recorded, and found"
    assert found == recorded, "it became shorter: record it with OMNIGRAPH_UPDATE_GOLDEN=1"


def test_calls_that_are_made_together_count_once(scene: Scene) -> None:
    store, root = open_store(scene.at), scene.at
    with measure_critical_path() as path:
        store.list_dir(root / "a")
        with Together(root) as outer:
            outer.add(lambda: store.list_dir(root / "b"))
            outer.add(lambda: [store.list_dir(root / name) for name in ("c", "d")])
            with Together(root) as inner:
                inner.add(lambda: store.list_dir(root / "e"))
                inner.add(lambda: store.list_dir(root / "f"))
        store.list_dir(root / "g")
    assert path.length == 1 + 1 + 2 + 1, "the inner ones are made first, and the outer ones after them"
