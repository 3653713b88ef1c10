"""A schema change that breaks off leaves the old schema or the new one, and can be repeated."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.engine.commit.schema_lock import find_lock
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.graph import Graph
from omnigraph.lang.schema import compile_schema
from omnigraph.storage.location import Location
from tests.engine.graphs import require_linear, run

OLD = "node P { k: String @key  a: I32? }\nnode Q { k: String @key }\nedge E: P -> P"
NEW = (
    "node P { k: String @key  a: I64 @default(0) }\nnode R { k: String @key }\n"
    'edge F: P -> P @rename_from("E") { w: I32? }'
)
POINTS = [
    failpoints.RECOVERY_SIDECAR_WRITE,
    failpoints.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT,
    failpoints.MUTATION_POST_TABLE_COMMIT,
    failpoints.SCHEMA_APPLY_BEFORE_STAGING_WRITE,
    failpoints.SCHEMA_APPLY_AFTER_STAGING_WRITE,
    failpoints.RECOVERY_SIDECAR_CONFIRM,
    failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND,
    failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
    failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT,
    failpoints.RECOVERY_SIDECAR_DELETE,
]
DYING = """
import sys
import omnigraph as og
og.open(sys.argv[1]).apply_schema(sys.argv[2])
"""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph to break off changes of."""
    place = tmp_path_factory.mktemp("interrupted") / "g.omni"
    with og.init(place, schema=OLD) as graph:
        graph.mutate(
            'query q() { insert P { k: "x", a: 1 } insert P { k: "y" } insert Q { k: "q" } '
            'insert E { from: "x", to: "y" } }'
        )
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    """A graph of one's own."""
    return Path(shutil.copytree(template, tmp_path / "g.omni"))


def require_whole(graph: Graph) -> str:
    """What is visible is of one schema, and queries are asked of it; says which."""
    tables = set(graph.snapshot().tables)
    rows = {row["k"]: row["a"] for row in graph.snapshot().rows("P").to_pylist()}
    fingerprint = graph.snapshot().schema.fingerprint
    if fingerprint == compile_schema(OLD).fingerprint:
        assert (tables, rows) == ({"node:P", "node:Q", "edge:E"}, {"x": 1, "y": None})
        found = "old"
    else:
        assert fingerprint == compile_schema(NEW).fingerprint
        assert (tables, rows) == ({"node:P", "node:R", "edge:F"}, {"x": 1, "y": 0})
        assert [(e["src"], e["dst"], e["w"]) for e in graph.snapshot().rows("F").to_pylist()] == [
            ("x", "y", None)
        ]
        found = "new"
    assert graph.query("query q() { match { $p: P } return { count($p) as n } }").rows() == [{"n": 2}]
    return found


def require_tidy(place: Path) -> None:
    """Nothing is left of a change that is over."""
    assert [at.name for at in place.rglob("*.staging")] == []
    assert list((place / "__recovery").glob("*")) == []
    opened = OpenGraph.open(Root.at(Location.parse(place)))
    assert find_lock(opened.root) is None
    commits = opened.load("main").state.commits
    chain = require_linear(commits.values(), list(commits)[1:])
    assert len(chain) == len(commits)


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_change_is_undone_or_finished_by_the_next_open(place: Path, point: str) -> None:
    died = run(DYING, str(place), NEW, OMNIGRAPH_FAILPOINTS=f"{point}=exit")
    assert died.returncode == failpoints.EXIT_STATUS, died.stderr
    with og.open(place, read_only=True) as reader:
        require_whole(reader)
    with og.open(place) as graph:
        found = require_whole(graph)
        assert graph.schema_source == {"old": OLD, "new": NEW}[found]
        require_tidy(place)
        assert graph.apply_schema(NEW).applied == (found == "old")
        assert require_whole(graph) == "new"
    require_tidy(place)


@pytest.mark.parametrize("point", POINTS)
def test_a_failed_change_can_be_repeated_without_reopening(place: Path, point: str) -> None:
    with og.open(place) as graph:
        failing = failpoints.arm(point, failpoints.once(failpoints.error(point)))
        # A record that is left behind does not fail the change it is about.
        stands = point == failpoints.RECOVERY_SIDECAR_DELETE
        with failing, nullcontext() if stands else pytest.raises(errors.OmnigraphError, match=point):
            graph.apply_schema(NEW)
        found = require_whole(graph)
        done = graph.apply_schema(NEW)
        assert (require_whole(graph), graph.schema_source) == ("new", NEW)
        assert found == "old" or not done.applied
    require_tidy(place)


@pytest.mark.parametrize("point", POINTS)
def test_a_writer_behind_a_killed_change_writes_to_one_schema(place: Path, point: str) -> None:
    with og.open(place) as graph:
        assert run(DYING, str(place), NEW, OMNIGRAPH_FAILPOINTS=f"{point}=exit").returncode
        graph.mutate('query q() { insert P { k: "z", a: 3 } }')
        assert sorted(row["k"] for row in graph.snapshot().rows("P").to_pylist()) == ["x", "y", "z"]
        graph.mutate('query q() { delete P where k = "z" }')
        require_whole(graph)


LIVE = ("_schema.pg", "_schema.ir.json", "__schema_state.json")


@pytest.mark.parametrize(
    ("in_place", "left"),
    [(0, "nothing"), (1, "nothing"), (2, "nothing"), (3, "nothing"), (0, "another"), (2, "another")],
)
def test_a_visible_schema_is_worked_out_again_when_its_files_are_gone(
    place: Path, in_place: int, left: str
) -> None:
    """In a bucket a suspended writer may remove or overwrite them later."""
    point = failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT
    failing = failpoints.arm(point, failpoints.error(point))
    with og.open(place) as graph, failing, pytest.raises(errors.RecoveryRequired):
        graph.apply_schema(NEW)
    staged = [place / f"{name}.staging" for name in LIVE]
    texts = [at.read_text() for at in staged]
    for name, text in list(zip(LIVE, texts, strict=True))[:in_place]:
        (place / name).write_text(text)
    for at, text in zip(staged, texts, strict=True):
        at.unlink()
        if left != "nothing":
            at.write_text(text.replace("R", "Other"))
    with og.open(place) as graph:
        assert require_whole(graph) == "new"
        assert not graph.apply_schema(NEW).applied
    assert [(place / name).read_text() for name in LIVE] == texts
    require_tidy(place)


def test_a_visible_schema_of_which_nothing_is_left_is_reported(place: Path) -> None:
    point = failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT
    with og.open(place) as graph:
        with failpoints.arm(point, failpoints.error(point)), pytest.raises(errors.RecoveryRequired):
            graph.apply_schema(NEW)
        commit = graph.snapshot().id
    for at in (*place.glob("*.staging"), place / "__schemas" / f"{commit}.pg"):
        at.unlink()
    with og.open(place) as graph, pytest.raises(errors.SchemaContractBroken, match=f"commit '{commit}' acc"):
        graph.mutate('query q() { insert P { k: "z", a: 3 } }')
