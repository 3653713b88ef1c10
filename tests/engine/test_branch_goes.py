"""A branch that is deleted, or recreated, while it is written to: reported as that, and nothing stays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest

from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import read_rows
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import BranchNotFound, Conflict
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage.location import Location
from tests.engine.graphs import new_graph

TORTURE = bool(os.environ.get("OMNIGRAPH_TORTURE"))
SCHEMA = "node Person { handle: String @key  age: I32? }\nedge Knows: Person -> Person\n"
WRITES = {
    "update": 'update Person set { age: 9 } where handle = "ann"',
    "insert": 'insert Person { handle: "new", age: 9 }',
    "edge": 'insert Knows { from: "ann", to: "bob" }',
    "delete": 'delete Person where handle = "ann"',
    "nothing": 'delete Person where handle = "missing"',
}
AFTER: dict[str, Callable[[dict[str, int]], dict[str, int]]] = {
    "update": lambda before: {**before, "ann": 9},
    "insert": lambda before: {**before, "new": 9},
    "delete": lambda before: {name: age for name, age in before.items() if name != "ann"},
}
"""What becomes of the ages of people; the others change none."""
KINDS = pytest.mark.parametrize("kind", WRITES if TORTURE else ["update"])
BEGIN = {"ann": 1, "bob": 1}


class Rival:
    """Does something at one of the storage calls of a write, unless that has its branch locked by then."""

    graph: OpenGraph

    def __init__(self) -> None:
        self._at = self._calls = 0

    def arm(self, at: int, branch: str, act: Callable[[], object]) -> None:
        """Wait for the call with this number."""
        self._at, self._branch, self._act = at, branch, act
        self._calls, self.acted = 0, False

    def __call__(self, op: str, uri: str, /) -> None:
        self._calls += 1
        if self._calls == self._at and not self.graph.root.locks.is_used_here(self._branch):
            self.acted = True
            self._act()


class Scene:
    """A graph, somebody who writes to it, and a rival with a handle of its own."""

    def __init__(self, at: Location) -> None:
        self.rival = Rival()
        self.other = new_graph(at, SCHEMA)
        write(self.other, " ".join(_person(name, age) for name, age in BEGIN.items()), MAIN)
        self.writer = self.rival.graph = OpenGraph.open(Root.at(at, self.rival))

    def branch(self, name: str, more: str) -> None:
        """A branch that has a table of its own."""
        create_branch(self.other, name)
        write(self.other, more, name)

    def recreate(self, name: str, more: str) -> None:
        """Another branch of the same name."""
        delete_branch(self.other, name)
        self.branch(name, more)

    def left(self, branch: str) -> list[str]:
        """The files of a branch, and the records of writes."""
        root = self.other.root.layout.root.path
        found = [*root.rglob(f"tree/{branch}/**/*"), *(root / "__recovery").glob("*.json")]
        return [path.relative_to(root).as_posix() for path in found if path.is_file()]

    def each_call(self, kind: str, act: Callable[[str], object], step: int = 1) -> Iterator[str]:
        """A branch for each call of a write at which the rival acts before the lock is taken."""
        for number in count(1, step):
            branch = f"{kind}{number}"
            self.branch(branch, _person("eve", 1))
            self.writer.load(branch)
            self.rival.arm(number, branch, partial(act, branch))
            yield branch
            if not self.rival.acted:
                assert number > 10, "a write asks that much before it has a lock"
                return


def _person(name: str, age: int) -> str:
    return f'insert Person {{ handle: "{name}", age: {age} }}'


def write(graph: OpenGraph, text: str, branch: str) -> None:
    compiled = compile_query(f"query q() {{ {text} }}", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    mutate(graph, compiled, {}, Author(branch))


def ages(graph: OpenGraph, branch: str) -> dict[str, int]:
    rows = read_rows(graph, graph.snapshot(AtBranch(branch)), "Person", ["handle", "age"], None)
    return dict(zip(rows["handle"].to_pylist(), rows["age"].to_pylist(), strict=True))


@pytest.fixture
def scene(folder: Location) -> Scene:
    return Scene(folder)


@KINDS
def test_a_write_whose_branch_is_deleted_says_so_and_leaves_nothing(scene: Scene, kind: str) -> None:
    for branch in scene.each_call(kind, lambda name: delete_branch(scene.other, name)):
        try:
            write(scene.writer, WRITES[kind], branch)
        except BranchNotFound:
            assert scene.rival.acted
            assert scene.left(branch) == []
        else:
            assert not scene.rival.acted


@KINDS
def test_a_write_whose_branch_is_recreated_changes_the_new_one_or_nothing(scene: Scene, kind: str) -> None:
    old, new = {**BEGIN, "eve": 1}, {**BEGIN, "zoe": 2}
    step = 1 if TORTURE else 5
    for branch in scene.each_call(kind, lambda name: scene.recreate(name, _person("zoe", 2)), step):
        found = new
        try:
            write(scene.writer, WRITES[kind], branch)
        except Conflict:
            assert scene.rival.acted
        else:
            found = AFTER.get(kind, dict)(new if scene.rival.acted else old)
        assert ages(scene.other, branch) == found
        assert not [name for name in scene.left(branch) if name.startswith("__recovery")]


def test_a_branch_that_goes_while_the_doctor_looks_is_not_reported_as_damaged(scene: Scene) -> None:
    for number in count(1, 1 if TORTURE else 9):
        name = f"b{number}"
        scene.branch(name, 'insert Person { handle: "cy", age: 1 }')
        scene.rival.arm(number, name, partial(delete_branch, scene.other, name))
        found = examine(scene.writer)
        assert found.unread == ()
        if not scene.rival.acted:
            assert number > 30, "the doctor asks that much"
            return
