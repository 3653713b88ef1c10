"""A graph to clean up, and what can still be read of it."""

from __future__ import annotations

from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtCommit, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table, read_rows
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import CleanupResult, cleanup
from omnigraph.errors import HistoricalVersionReclaimed
from omnigraph.storage.tables import Table
from tests.engine.crash.world import PERSON, change
from tests.engine.upkeep_graph import commits_of

ENDLESS = "100000000w"


def add(graph: OpenGraph, *names: str, branch: str = MAIN) -> list[str]:
    """A commit for each person; gives their ids."""
    done = (change(graph, f'insert Person {{ name: "{name}" }}', branch).commit for name in names)
    return [commit.id for commit in done if commit is not None]


def clean(
    graph: OpenGraph,
    keep: int | None = 1,
    older_than: str | None = None,
    *,
    age: float = 0.0,
    dry: bool = False,
) -> CleanupResult:
    """A cleanup after which everything that was to go is gone."""
    done = cleanup(graph, CleanupPolicy.of(keep, older_than, age), dry_run=dry)
    assert done.ok, done
    return done


def newcomer(graph: OpenGraph) -> OpenGraph:
    """The graph as a new process opens it."""
    return OpenGraph.open(Root.at(graph.root.layout.root), read_only=True)


def people_at(graph: OpenGraph, commit_id: str) -> set[str] | None:
    """The persons as a commit left them; None when that was cleaned up."""
    fresh = newcomer(graph)
    try:
        found = read_rows(fresh, fresh.snapshot(AtCommit(commit_id)), "Person", ["name"], None)
    except HistoricalVersionReclaimed:
        return None
    return set(found.column("name").to_pylist())


def readable(graph: OpenGraph, branch: str = MAIN) -> list[Commit]:
    """The commits of a branch, oldest first, of which every table can still be read."""
    return [commit for commit in commits_of(graph, branch) if _is_readable(graph, commit)]


def _is_readable(graph: OpenGraph, commit: Commit) -> bool:
    fresh = newcomer(graph)
    snapshot = fresh.snapshot(AtCommit(commit.id))
    try:
        for key in snapshot.entries:
            open_table(fresh, snapshot, key).scan()
    except HistoricalVersionReclaimed:
        return False
    return True


def table_at(graph: OpenGraph, key: str = PERSON, branch: str = MAIN) -> Table:
    """A table at its newest version."""
    entry = graph.load(branch).state.entries()[key]
    return graph.root.tables.tip(graph.root.layout.table(entry.path), branch=entry.owner)
