"""What the tests of the engine share: small graphs, publishes without data, and looks from outside."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa

from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import KEY, MAIN, ManifestState, Records, TableVersion, encode
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, Publication, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.upkeep.manifest_upkeep import run_manifest_upkeep
from omnigraph.errors import StorageFailure
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Observer
from omnigraph.storage.staging import commit_staged, stage_append
from tests import python_process

SCHEMA = """
node Person { name: String @key }
node Team { name: String @key }
edge Knows: Person -> Person
"""
PERSON, TEAM, KNOWS = "node:Person", "node:Team", "edge:Knows"


def schema_of(types: int) -> str:
    """A schema with so many node types."""
    return "".join(f"node Type{number} {{ name: String @key }}\n" for number in range(types))


def new_graph(at: Location, schema: str = SCHEMA, observe: Observer | None = None) -> OpenGraph:
    """A graph that was just made, opened."""
    create_graph(Root.at(at), schema)
    return OpenGraph.open(Root.at(at, observe))


def no_room_for(op: str, *, where: Callable[[str], bool] = bool) -> Observer:
    """A store that fails an operation, wherever it is called or only at some places."""

    def fail(called: str, uri: str, /) -> None:
        if called == op and where(uri):
            raise StorageFailure("no room", kind="Transient", uri=uri)

    return fail


def publish_from_outside(coordinator: Coordinator, *versions: TableVersion) -> None:
    """A commit as another program may write it: nothing of it is checked, and no failpoint is reached."""
    loaded = coordinator.load()
    parent = loaded.state.head
    assert parent is not None
    commit = replace(
        parent,
        id=coordinator.root.new_id(),
        parent=parent.id,
        version=loaded.state.version + 1,
        created_at=parent.created_at + 1,
    )
    records = Records(versions=versions, commits=[commit], heads={coordinator.branch: commit.id})
    merge_rows(loaded.table, encode(records, loaded.state.locations), KEY)


def with_clock(graph: OpenGraph, clock: Callable[[], int]) -> OpenGraph:
    """The same graph through a root with another clock."""
    return OpenGraph(replace(graph.root, clock=clock), read_only=False)


def bare_publish(
    coordinator: Coordinator,
    versions: Mapping[str, int] | None = None,
    *,
    actor: str | None = None,
    rows: int = 0,
    owner: str | None = None,
) -> Publication:
    """A commit that only says that tables have new versions."""
    changed = tuple(TableVersion(key, version, owner, rows) for key, version in (versions or {}).items())
    return publish(
        coordinator, ManifestChanges(versions=changed), NewCommit(coordinator.root.new_id(), actor=actor)
    )


def kept_publish(coordinator: Coordinator, lineage: NewCommit) -> Publication:
    """An empty commit, after which the manifest is compacted where that is due; callers hold the lock."""
    done = publish(coordinator, ManifestChanges(), lineage)
    run_manifest_upkeep(coordinator, done)
    return done


def add_branch(graph: OpenGraph, name: str, source: str = MAIN) -> Coordinator:
    """A branch of the manifest at the newest version of another."""
    graph.root.forks.create(graph.load(source).table, name)
    return graph.coordinator(name)


def append_people(graph: OpenGraph, *names: str, branch: str = MAIN) -> Publication:
    """Real rows in a real table, published."""
    coordinator = graph.coordinator(branch)
    entry = coordinator.load().state.entries()[PERSON]
    table = graph.root.tables.open(graph.root.layout.table(entry.path), entry.version, branch=entry.owner)
    rows = pa.table({"id": list(names), "name": list(names)}, schema=table.schema)
    made = commit_staged(stage_append(table, rows))
    version = TableVersion(PERSON, made.version, entry.owner, made.count())
    return publish(coordinator, ManifestChanges(versions=(version,)), NewCommit(graph.root.new_id()))


def require_linear(commits: Iterable[Commit], expected: Iterable[str]) -> list[Commit]:
    """The commits as one chain from the first on; fails unless it holds exactly the expected ones."""
    known = {commit.id: commit for commit in commits}
    children: dict[str | None, list[Commit]] = {}
    for commit in known.values():
        children.setdefault(commit.parent, []).append(commit)
    shared = {parent: [c.id for c in found] for parent, found in children.items() if len(found) > 1}
    assert not shared, f"commits share a parent: {shared}"
    chain: list[Commit] = []
    parent: str | None = None
    while found := children.get(parent):
        chain.append(found[0])
        parent = found[0].id
    assert len(chain) == len(known), "some commits hang in the air"
    assert {commit.id for commit in chain[1:]} == set(expected)
    assert [c.order for c in chain] == sorted(c.order for c in chain)
    times = [commit.created_at for commit in chain]
    assert times == sorted(set(times)), "time stands still or goes back along the chain"
    return chain


def require_consistent(state: ManifestState, branch: str = MAIN) -> None:
    """The stored head row names the head that follows from the commits."""
    assert state.head is not None
    assert state.heads[branch] == state.head.id


def require_owners(graph: OpenGraph, branch: str) -> None:
    """A branch shows tables of its own, of main and of branches it descends from: deletions rely on it."""
    line: set[str | None] = {None}
    at = None if branch == MAIN else branch
    while at is not None:
        line.add(at)
        fork = graph.root.forks.find(graph.root.layout.manifest, at)
        assert fork is not None, f"'{branch}' descends from '{at}', which is gone"
        at = fork.parent
    assert {entry.owner for entry in graph.load(branch).state.entries().values()} <= line


def manifest_rows(root: Root, branch: str | None = None) -> pa.Table:
    """The manifest as Lance shows it to anyone."""
    uri = root.layout.manifest.uri + (f"/tree/{branch}" if branch else "")
    return lance.dataset(uri, storage_options=root.layout.root.storage_options() or None).to_table()


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, every folder with None."""
    return {
        str(at.relative_to(folder)): at.read_bytes() if at.is_file() else None for at in folder.rglob("*")
    }


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python process with this code, to its end."""
    return python_process.run("-c", code, *arguments, env={**os.environ, **environment})
