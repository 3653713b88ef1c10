"""Whatever changes a graph asks its policy first, and a new writer cannot forget to.

From each function that changes a graph the walk goes up to those that call it. On every way it has to come to
one that asks; at a function that is called by no other it has come too far.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.engine.crash.test_every_writer_is_tried import SOURCE, _parts, find_writers

ROOMS = {
    "engine/commit/": "the commit protocol, and recovery, which finishes what was allowed before",
    "engine/upkeep/": "upkeep after a write, which changes no row",
    "engine/graph/": "the compare-and-swap itself, and what opening a graph brings up to date",
    "engine/lifecycle/": "a graph that is being created or opened has no policy yet",
}
FUNCTIONS = {"init_at": "a graph that is being created has no policy yet"}
"""Functions that write and ask nothing, and why."""
ASKING_DOORS = {"create_branch", "create_branch_at", "delete_branch", "create_branch_for_write"} | {
    "create_tag",
    "delete_tag",
}
"""Ways to change a graph that ask by themselves; a test below makes sure of it."""


CALLERS = frozenset(find_writers())


class Place(NamedTuple):
    """A function or method of the package."""

    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.file} {self.name}"


def writers() -> list[Place]:
    """The functions in which something is called that changes a graph, without the exempt ones."""
    called = (caller.partition(": ") for caller in CALLERS)
    places = {Place(*place.split(" ", 1)) for place, _, door in called if door not in ASKING_DOORS}
    return sorted(
        one for one in places if one.name not in FUNCTIONS and not one.file.startswith(tuple(ROOMS))
    )


@cache
def functions(source: Path, file: str) -> dict[str, ast.AST]:
    return dict(_parts(ast.parse((source / file).read_text()).body))


@cache
def texts(source: Path) -> dict[str, str]:
    files = (path for path in source.rglob("*.py") if not path.is_relative_to(source / "storage"))
    return {path.relative_to(source).as_posix(): path.read_text() for path in files}


def asks(node: ast.AST) -> bool:
    """Whether a function calls `graph.permissions.require` or `require_admin`."""
    return any(
        isinstance(one, ast.Attribute)
        and one.attr in ("require", "require_admin")
        and isinstance(one.value, ast.Attribute)
        and one.value.attr == "permissions"
        for one in ast.walk(node)
    )


def mentions(node: ast.AST, name: str) -> bool:
    return any(
        (isinstance(one, ast.Name) and one.id == name)
        or (isinstance(one, ast.Attribute) and one.attr == name)
        for one in ast.walk(node)
    )


def imported_as(source: Path, file: str, module: str, name: str) -> set[str]:
    """What a function of another module is called in a file."""
    tree = ast.parse(texts(source)[file])
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
        if alias.name == name
    }


def calling(source: Path, place: Place) -> Iterator[Place]:
    """The functions that name this one: in its own file, or where it is imported."""
    last = place.name.rpartition(".")[2]
    own = functions(source, place.file)
    yield from (
        Place(place.file, name) for name, node in own.items() if name != place.name and mentions(node, last)
    )
    module = "omnigraph." + place.file.removesuffix(".py").replace("/", ".")
    for file, text in texts(source).items():
        if module in text and last in text and file != place.file:
            for known in imported_as(source, file, module, last):
                parts = functions(source, file).items()
                yield from (Place(file, name) for name, node in parts if mentions(node, known))


def without_asking(source: Path, start: Place) -> list[str]:
    """The ways to a writer on which no function asks, each by the function it begins with."""
    seen, ahead, loose = {start}, [start], []
    while ahead:
        place = ahead.pop()
        if asks(functions(source, place.file)[place.name]):
            continue
        above = [one for one in calling(source, place) if one.name not in ("(module)", "")]
        if not above:
            loose.append(str(place))
        ahead += [one for one in above if one not in seen]
        seen.update(above)
    return sorted(loose)


@pytest.mark.parametrize("place", writers(), ids=str)
def test_every_way_to_a_writer_asks_policy(place: Place) -> None:
    assert without_asking(SOURCE, place) == [], f"on these ways to {place} no policy is asked"


def test_the_writers_are_those_of_users() -> None:
    """If nothing were found, nothing would be wrong."""
    names = {one.name for one in writers()}
    assert {"run_statements", "_Load.run", "optimize", "write_skipping_drift", "_publish_drift"} <= names


@pytest.mark.parametrize("name", ["create_branch", "delete_branch"])
def test_branches_are_made_and_deleted_by_functions_that_ask(name: str) -> None:
    assert asks(functions(SOURCE, "engine/branches/manage.py")[name])


def test_every_exemption_is_still_needed() -> None:
    used = [caller.partition(": ")[0] for caller in CALLERS]
    assert [one for one in FUNCTIONS if not any(place.endswith(f" {one}") for place in used)] == []
    assert [room for room in ROOMS if not any(one.startswith(room) for one in used)] == []


ASKS = "    graph.permissions.require('change')\n"
ASKS_ADMIN = "    graph.permissions.require_admin(None)\n"
WRITES = "    write(graph)\n"
CALLS = "    _go(graph)\n"
NEW, OTHER, GO = "def new(graph):\n", "def other(graph):\n", "def _go(graph):\n"


@pytest.mark.parametrize(
    ("source", "loose"),
    [
        (NEW + WRITES, ["writes.py new"]),
        (NEW + ASKS + WRITES, []),
        (NEW + ASKS_ADMIN + CALLS + GO + WRITES, []),
        (NEW + CALLS + GO + WRITES, ["writes.py new"]),
        (NEW + ASKS + CALLS + OTHER + CALLS + GO + WRITES, ["writes.py other"]),
    ],
)
def test_the_walk_finds_a_writer_that_asks_nothing(source: str, loose: list[str], tmp_path: Path) -> None:
    (tmp_path / "writes.py").write_text(source)
    (writer,) = (name for name, node in functions(tmp_path, "writes.py").items() if mentions(node, "write"))
    assert without_asking(tmp_path, Place("writes.py", writer)) == loose


def test_the_walk_follows_imports_to_other_modules(tmp_path: Path) -> None:
    (tmp_path / "writes.py").write_text("def go(graph):\n    write(graph)")
    (tmp_path / "front.py").write_text(
        "from omnigraph.writes import go as run\ndef new(graph):\n    run(graph)"
    )
    assert without_asking(tmp_path, Place("writes.py", "go")) == ["front.py new"]
