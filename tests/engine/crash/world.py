"""A small graph to crash on: its schema, its first rows, writes to it, and a complete look at it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from omnigraph.engine.branches.manage import list_branches
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.schema_lock import find_lock
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.layout import table_keys
from omnigraph.engine.graph.lineage import Commit, walk_first_parents
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.graph.table_types import table_types_of
from omnigraph.engine.graph.tags import list_tags
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest, LoadResult
from omnigraph.engine.tasks.runner import ChooseEngine
from omnigraph.engine.write.mutate import MutationResult
from omnigraph.engine.write.transaction import Author
from omnigraph.storage.location import Location
from tests.engine.crash.places import root_at
from tests.engine.mutations import run_mutation

SCHEMA = """
node Person { name: String @key  age: I32? }
node Team { name: String @key  title: String? }
edge Knows: Person -> Person { since: I32? }
edge MemberOf: Person -> Team
"""
PERSON, TEAM, KNOWS, MEMBER = "node:Person", "node:Team", "edge:Knows", "edge:MemberOf"

FIRST = (
    {"type": "Person", "data": {"name": "ada", "age": 36}},
    {"type": "Person", "data": {"name": "bo", "age": 20}},
    {"type": "Person", "data": {"name": "cy"}},
    {"type": "Team", "data": {"name": "core", "title": "Core"}},
    {"edge": "Knows", "from": "ada", "to": "bo", "data": {"id": "k1", "since": 2019}},
    {"edge": "Knows", "from": "bo", "to": "cy", "data": {"id": "k2"}},
    {"edge": "MemberOf", "from": "ada", "to": "core", "data": {"id": "m1"}},
    {"edge": "MemberOf", "from": "bo", "to": "core", "data": {"id": "m2"}},
)
ACTOR = "act-ivy"
SCHEMA_ROW = "schema"
"""Where a look tells which schema holds, beside the rows of every table."""

_GENERATED = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")

Rows = list[dict[str, Any]]


def make_graph(at: Path | Location) -> OpenGraph:
    """The graph with its first rows."""
    place = at if isinstance(at, Location) else Location.parse(at)
    create_graph(Root.at(place), SCHEMA)
    graph = OpenGraph.open(Root.at(place))
    load_rows(graph, FIRST, Mode.APPEND)
    return graph


def open_unrecovered(at: Path | Location) -> OpenGraph:
    """The graph at a place as a newcomer holds it who has not dealt with anything yet."""
    return OpenGraph.open(root_at(at if isinstance(at, Location) else Location.parse(at)))


def load_rows(
    graph: OpenGraph,
    rows: tuple[dict[str, Any], ...],
    mode: Mode,
    branch: str = MAIN,
    engine: ChooseEngine | None = None,
    from_: str | None = None,
) -> LoadResult:
    """Load rows through a file."""
    with NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(json.dumps(row) for row in rows))
        file.flush()
        request = LoadRequest((Path(file.name),), mode)
        return load(graph, request, Author(branch, ACTOR), from_=from_, engine=engine)


def change(graph: OpenGraph, text: str, branch: str = MAIN, if_commit: str | None = None) -> MutationResult:
    """Carry out the statements of a mutation."""
    return run_mutation(graph, text, Author(branch, ACTOR, if_commit))


# --- looking -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BranchView:
    """All that a reader can see of a branch."""

    rows: dict[str, Rows]
    """By table, sorted by id; generated ids are replaced by one and the same text."""
    chain: tuple[Commit, ...]
    """The commits from the newest to the first."""


View = dict[str, BranchView]


def branches(graph: OpenGraph) -> list[str]:
    """The branches that people have."""
    return [one.name for one in list_branches(graph)]


def look(graph: OpenGraph) -> View:
    """Everything that is visible, by branch; fails where what is visible does not add up."""
    _require_tags(graph)
    return {branch: _branch_view(graph, branch) for branch in branches(graph)}


def _require_tags(graph: OpenGraph) -> None:
    """Each tag names a commit that can be read."""
    for tag in list_tags(graph.root):
        snapshot = graph.snapshot(AtCommit(tag.name))
        assert snapshot.id == tag.commit_id
        for key, entry in snapshot.entries.items():
            assert open_table(graph, snapshot, key).count() == entry.row_count


def _branch_view(graph: OpenGraph, branch: str) -> BranchView:
    graph.coordinator(branch).forget()
    state = graph.load(branch).state
    rows = {}
    for key, entry in state.entries().items():
        table = graph.root.tables.open(graph.root.layout.table(entry.path), entry.version, branch=entry.owner)
        found = table.scan().to_pylist()
        assert len(found) == entry.row_count, f"{key} has {len(found)} rows, not {entry.row_count}"
        assert len({row["id"] for row in found}) == len(found), f"{key} has an id twice"
        rows[key] = sorted((_comparable(row) for row in found), key=repr)
    known = graph.catalog_at(graph.snapshot(AtBranch(branch)))
    assert table_keys(known) == sorted(rows), "the tables are not those of the schema"
    rows[SCHEMA_ROW] = [{"schema": known.fingerprint}]
    assert state.head is not None
    chain = tuple(walk_first_parents(state.commits, state.head.id))
    assert {commit.id for commit in chain} == set(state.commits), "the commits are not one chain"
    assert list(chain) == sorted(chain, key=lambda commit: commit.order, reverse=True)
    return BranchView(rows, chain)


def _comparable(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "id": "(new)"} if _GENERATED.fullmatch(row["id"]) else row


def rows_of(view: View) -> dict[str, dict[str, Rows]]:
    """Only the rows of a view."""
    return {branch: one.rows for branch, one in view.items()}


def pending(graph: OpenGraph) -> list[str]:
    """The operations on record."""
    return sidecar.operations(graph.root)


def require_settled(graph: OpenGraph) -> None:
    """No operation is on record, no schema is on its way, and tables stand where their branch says."""
    assert graph.root.objects.list_dir(graph.root.layout.recovery) == []
    assert find_lock(graph.root) is None
    assert [at for at in graph.root.objects.list_dir(graph.root.layout.root) if "staging" in at.name] == []
    _require_schema(graph)
    for branch in branches(graph):
        own = None if branch == MAIN else branch
        for key, entry in graph.load(branch).state.entries().items():
            if entry.owner == own:
                tip = graph.root.tables.tip(graph.root.layout.table(entry.path), branch=own)
                assert tip.version == entry.version, f"{key} of {branch} is at {tip.version}, pin {entry}"


def _require_schema(graph: OpenGraph) -> None:
    """The schema files, the newest commit and the columns of the tables are of one schema."""
    live = graph.schema()
    newest = graph.snapshot(AtBranch())
    assert live.catalog.fingerprint == graph.catalog_at(newest).fingerprint
    for key, target in table_types_of(live.accepted).items():
        assert open_table(graph, newest, key).schema.names == target.schema.names


def stray_forks(graph: OpenGraph) -> list[str]:
    """Forks of tables that no branch shows."""
    shown = {
        (entry.path, entry.owner)
        for branch in branches(graph)
        for entry in graph.load(branch).state.entries().values()
    }
    paths = {entry.path for entry in graph.load(MAIN).state.entries().values()}
    return [
        f"{path} {name}"
        for path in sorted(paths)
        for name in graph.root.forks.list(graph.root.layout.table(path))
        if (path, name) not in shown
    ]
