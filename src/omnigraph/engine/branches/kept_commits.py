"""Tagged commits of deleted branches.

A commit's tables may be on the fork of its branch, which goes when the branch is deleted. Before that, each
tagged commit is kept: tables of main are named by their version, which cleanup then keeps, and the others are
copied beside the tag. `commit.json` is written last: without it the files are those of a process that died.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import fields

import msgspec
import pyarrow as pa

from omnigraph.engine.graph.ancestry import Ancestry
from omnigraph.engine.graph.layout import fnv1a64
from omnigraph.engine.graph.lineage import Commit, ancestors
from omnigraph.engine.graph.manifest import MAIN, ManifestState
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.graph.tags import (
    COMMIT_FILE,
    FORMAT,
    KeptFile,
    KeptTable,
    kept_folder,
    list_kept_commits,
    list_tags,
    read_kept_commit,
)
from omnigraph.errors import HistoricalVersionReclaimed
from omnigraph.storage.blobs import is_blob, to_writable
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.tables import Table

_BLOBS_AT_ONCE = 64

_log = logging.getLogger(__name__)


def keep_tagged_commits(graph: OpenGraph, held: HeldLocks, branch: str) -> None:
    """Keep the tagged commits of a branch that is about to be deleted; `held` has its lock."""
    tagged = {tag.commit_id for tag in list_tags(graph.root)}
    if not tagged:
        return
    state = graph.load(branch).state
    own = [one for one in state.commits.values() if one.id in tagged and one.branch == branch]
    for commit in own:
        if read_kept_commit(graph.root, commit.id) is None:
            _keep(graph, held, branch, state, commit)


def _keep(graph: OpenGraph, held: HeldLocks, branch: str, state: ManifestState, commit: Commit) -> None:
    place = kept_folder(graph.root, commit.id)
    graph.root.objects.delete_prefix(place, held)
    try:
        snapshot = graph.snapshot(AtVersion(branch, commit.version))
        tables = {key: _keep_table(graph, snapshot, key) for key in snapshot.entries}
    except HistoricalVersionReclaimed as error:
        _log.warning("tagged commit '%s' of branch '%s' is not kept: %s", commit.id, branch, error.message)
        return
    history = _list_history(graph, branch, state, commit)
    file = KeptFile(FORMAT, list(snapshot.incarnation), [_to_json(one) for one in history], tables)
    graph.root.objects.write_text(place / COMMIT_FILE, msgspec.json.encode(file).decode())


def _list_history(graph: OpenGraph, branch: str, state: ManifestState, commit: Commit) -> list[Commit]:
    """The commit, and those of its ancestors that main does not show."""
    main = graph.load(MAIN).state
    known = ancestors(Ancestry({branch: state, MAIN: main}).commits, [commit.id])
    return [one for name, one in known.items() if name not in main.commits]


def _to_json(commit: Commit) -> dict[str, object]:
    facts = {field.name: getattr(commit, field.name) for field in fields(commit)}
    return {name: value for name, value in facts.items() if value is not None}


def _keep_table(graph: OpenGraph, snapshot: Snapshot, key: str) -> KeptTable:
    entry = snapshot.entries[key]
    if entry.owner is None:
        return KeptTable(entry.path, entry.version, entry.row_count)
    source, root = open_table(graph, snapshot, key), graph.root
    place = kept_folder(root, snapshot.id) / fnv1a64(key)
    rows = pa.RecordBatchReader.from_batches(source.schema, _read_batches(source))
    made = root.tables.create(place, source.schema, primary_key=ID, rows=rows)
    folder = kept_folder(root, snapshot.id)
    return KeptTable(f"{root.layout.tags.name}/{folder.name}/{place.name}", made.version, entry.row_count)


def _read_batches(table: Table) -> Iterator[pa.RecordBatch]:
    schema = table.schema
    has_blobs = any(map(is_blob, schema))
    size = _BLOBS_AT_ONCE if has_blobs else None
    for batch in table.batches(schema.names, batch_size=size, blob_bytes=has_blobs):
        yield from to_writable(pa.Table.from_batches([batch]), schema).to_batches()


# --- removing ------------------------------------------------------------------------------------


def remove_kept_commit(graph: OpenGraph, held: HeldLocks, commit_id: str) -> None:
    """Remove what is kept of a commit that no tag names; `held` has main's lock."""
    place = kept_folder(graph.root, commit_id)
    graph.root.objects.delete(place / COMMIT_FILE, held)  # first: a reader must not find half of the tables
    graph.root.objects.delete_prefix(place, held)


def find_unneeded_commits(graph: OpenGraph) -> tuple[str, ...]:
    """Return the kept commits that no tag names."""
    tagged = {tag.commit_id for tag in list_tags(graph.root)}
    return tuple(sorted(list_kept_commits(graph.root) - tagged))


def remove_unneeded_commits(graph: OpenGraph, commits: Collection[str]) -> None:
    """Remove kept commits, as far as no tag names them now."""
    if commits:
        with graph.root.locks.hold([MAIN]) as held:
            held.require()
            for commit_id in set(commits) & set(find_unneeded_commits(graph)):
                remove_kept_commit(graph, held, commit_id)
