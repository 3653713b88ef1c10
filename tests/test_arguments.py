"""Wrong arguments of public methods: each ends in a typed error that names it, and none comes any further."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import chdir
from inspect import Parameter, signature, unwrap
from pathlib import Path
from typing import Any, get_origin

import pytest

import omnigraph as og
from omnigraph import arguments as boundary
from omnigraph.engine.write.builder import WriteBlock
from omnigraph.errors import InvalidName, InvalidValue, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.history import Branches, Commits
from omnigraph.query.algorithms.calls import Algorithms
from omnigraph.snapshot import Snapshot

SCHEMA = "node P { k: String @key  b: Blob?  n: F64? }\nedge E: P -> P"
LONE = "\udc80"
WRONG = (5, 2.5, b"bytes", object(), True, ["x"], {"a": 1}, LONE, "\ud800x")
"""A value is tried for each parameter that its annotation does not allow it for."""
NEEDED = {
    "query": "query q() { match { $p: P } return { $p.k as k } }",
    "schema": SCHEMA,
    "output": "never",
    "destination": "never",
    "data": [],
    "mode": "append",
    "source": "main",
    "a": "main",
    "b": "main",
    "name": "branch",
    "type_name": "P",
    "id": "x",
    "property_name": "b",
    "commit": "none",
    "commit_id": "none",
    "ours": "none",
    "theirs": "none",
    "sources": ["x"],
    "what": "query q() { match { $p: P } return { $p.k as k } }",
    "from_": "x",
    "to": "y",
    "where": ("k", "=", "x"),
    "statement": "select 1",
}
UNTRIED = {"spark", "close", "refresh", "run_on"}
"""Methods without arguments to get wrong, or with a session of Spark, or for the pipeline."""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    folder = tmp_path_factory.mktemp("arguments")
    # A wrong text may well be the name of a file.
    with chdir(folder), og.init(folder / "g.omni", schema=SCHEMA) as made:
        yield made


def owners(graph: Graph) -> dict[type, Any]:
    write = graph.write()
    write.__enter__()
    return {
        Graph: graph,
        Branches: graph.branches,
        Commits: graph.commits,
        Snapshot: graph.snapshot(),
        Algorithms: graph.algorithms,
        WriteBlock: write,
    }


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__:
        for name, found in vars(base).items():
            if callable(found) and not name.startswith("_") and name not in UNTRIED:
                yield name, unwrap(found)


def names(arguments: boundary._Arguments) -> list[str]:
    behind = arguments._keywords
    return [*arguments._named, *(() if behind is None else boundary._options(arguments._hint(behind)))]


def calls(kind: type) -> Iterator[tuple[str, str, Any]]:
    for name, method in methods(kind):
        arguments = boundary._Arguments(method)
        for parameter in names(arguments):
            argument = arguments.evaluate(parameter)
            if argument is None:
                continue
            # A byte that is not UTF-8 may be in the name of a file, but not in a text.
            unwritable = (LONE, "\ud800x") if argument._is_text else ("\ud800x",)
            for value in WRONG:
                if not any(check(value) for check in argument._checks) or value in unwritable:
                    yield name, parameter, value


def call(owner: Any, name: str, parameter: str, value: Any) -> Any:
    method = getattr(owner, name)
    places, named = [], {}
    for one in signature(method).parameters.values():
        if one.name == parameter:
            given = value
        elif one.default is Parameter.empty and one.kind not in (
            Parameter.VAR_KEYWORD,
            Parameter.VAR_POSITIONAL,
        ):
            given = NEEDED[one.name]
        else:
            continue
        if one.kind is Parameter.POSITIONAL_ONLY:
            places.append(given)
        else:
            named[one.name] = given
    if parameter not in signature(method).parameters:
        named[parameter] = value
    return method(*places, **named)


@pytest.mark.parametrize("kind", [Graph, Branches, Commits, Snapshot, Algorithms, WriteBlock])
def test_every_argument_of_every_public_method_is_checked(graph: Graph, kind: type) -> None:
    owner = owners(graph)[kind]
    before, tried = graph.snapshot().id, 0
    for name, parameter, value in calls(kind):
        with pytest.raises(OmnigraphError) as refused:
            call(owner, name, parameter, value)
        message = str(refused.value)
        assert message.isprintable() or "\n" in message, (name, parameter, value)
        tried += 1
    assert tried > 5
    assert graph.snapshot().id == before


@pytest.mark.parametrize("wrong", ["1", 1.5])
def test_the_range_of_a_blob_is_checked(tmp_path: Path, wrong: Any) -> None:
    with og.init(str(tmp_path / "g.omni"), schema="node P { k: String @key  b: Blob? }") as own:
        with own.write() as tx:
            tx.insert("P", k="x", b=b"123")
        blob = own.snapshot().blob("P", "x", "b")
        with pytest.raises(InvalidValue, match="`offset` must be an integer"):
            blob.read(offset=wrong)
        with pytest.raises(InvalidValue, match="`length` must be an integer"):
            blob.parts(length=wrong)
        assert blob.read(1, 1) == b"2"


def test_what_was_reported(graph: Graph) -> None:
    for wrong in (
        lambda: graph.change_page(limit="3"),  # type: ignore[arg-type]
        lambda: graph.changes(since=5),  # type: ignore[arg-type]
        lambda: graph.commits.change_page(graph.snapshot().id, limit="3"),  # type: ignore[arg-type]
        lambda: graph.commits.list(limit="3"),  # type: ignore[arg-type]
        lambda: graph.at(version="3"),  # type: ignore[arg-type]
        lambda: graph.snapshot().rows("P", limit=2.5),  # type: ignore[arg-type]
        lambda: graph.snapshot(LONE),
        lambda: graph.branches.create(f"a{LONE}"),
        lambda: graph.branches.delete(f"a{LONE}"),
        lambda: graph.commits.get(LONE),
        lambda: graph.commits.merge_base(LONE, LONE),
        lambda: graph.diff("main", LONE),
        lambda: graph.snapshot().blob("P", LONE, "b"),
        lambda: graph.mutate('query q($k: String) { insert P { k: $k } }', {"k": LONE}),
        lambda: graph.mutate('query q() { insert P { k: "x" } }', actor=LONE),
        lambda: graph.mutate('query q() { insert P { k: "x" } }', if_commit=LONE),
        lambda: graph.load([{"k": LONE}], type="P", mode="append"),
        lambda: graph.load([{"k": "x"}], type=LONE, mode="append"),
        lambda: graph.load("\ud800x", mode="append"),
        lambda: graph.load(["a\0b"], mode="append"),
        lambda: graph.load([{"k": "x"}], type="P", mode="append", rejects="a\0b"),
        lambda: graph.export("\ud800x"),
        lambda: graph.export("a\0b"),
        lambda: graph.merge(LONE),
        lambda: graph.export("never", types=[LONE]),
        lambda: graph.query(f"query q() {{ match {{ $p: P }} return {{ \"{LONE}\" as k }} }}"),
        lambda: og.init(f"/dev/shm/x{LONE}", schema=SCHEMA),
        lambda: og.open(f"/dev/shm/x{LONE}"),
    ):  # fmt: skip
        with pytest.raises(OmnigraphError):
            wrong()
    with pytest.raises(InvalidValue, match=r"`limit` must be an integer, got '3' \(str\)"):
        graph.change_page(limit="3")  # type: ignore[arg-type]
    with graph.write() as tx, pytest.raises(OmnigraphError):
        tx.insert_edge("E", LONE, "x")


def test_values_that_behave_as_the_type_are_taken(graph: Graph, tmp_path: Path) -> None:
    import numpy as np

    assert graph.commits.list(limit=np.int64(1))[0].id == graph.snapshot().id  # type: ignore[arg-type]
    assert len(graph.change_page(types="P", limit=np.int32(5)).blocks) == 0  # type: ignore[arg-type]
    assert graph.export(str(tmp_path / "x"), types=(name for name in ["P"])).rows == 0
    with pytest.raises(TypeError, match="unexpected keyword"):
        graph.snapshot(brunch="main")  # type: ignore[call-arg]
    with pytest.raises(InvalidName):
        graph.snapshot("no such name")
    assert get_origin(list[str]) is list
