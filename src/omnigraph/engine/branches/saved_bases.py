"""Merge bases saved from deleted branches.

A commit of a branch that was merged into two others can be their merge base, even once the branch is deleted.
So a merge records from which branch it takes a commit, and into which: one small file. Deleting a branch that
two others took commits from saves the content of these commits, as the difference from main's tables, which
always stay. Cleanup removes the bases that no merge needs.

    __bases/taken-<uuid of a branch>/<commit>-<uuid of the branch that took it>
    __bases/<commit>/base.json, and a table of changed rows and one of deleted ids for each type
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.row_pairs import RIGHT, compare_sides, row_ids, split_rows
from omnigraph.engine.changes.table_side import PLACES, ROW_ID, TableSide
from omnigraph.engine.graph.layout import fnv1a64
from omnigraph.engine.graph.lineage import Commit, walk_first_parents
from omnigraph.engine.graph.manifest import MAIN, ManifestState, TableEntry
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.table_types import ID
from omnigraph.errors import CorruptGraph, HistoricalVersionReclaimed
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage.blobs import to_writable
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.references import Incarnation

FORMAT = 1

_TAKEN = "taken-"
_FILE = "base.json"
_AT_ONCE = 8192

_log = logging.getLogger(__name__)


class SavedTable(msgspec.Struct, frozen=True):
    """A table of a saved commit: a version of main's table, and how the commit differs from it."""

    path: str
    version: int
    row_count: int | None
    changed: str | None = None
    """The table of rows that were added or changed, relative to the root."""
    deleted: str | None = None
    """The table of ids that were deleted."""


class _File(msgspec.Struct, frozen=True):
    format: int
    tables: dict[str, SavedTable]


@dataclass(frozen=True, slots=True)
class SavedBase:
    """The content of a commit whose branch was deleted."""

    commit: str
    tables: Mapping[str, SavedTable]


# --- notes of merges -----------------------------------------------------------------------------


def record_taken_commit(
    graph: OpenGraph, branch: str, identity: Incarnation, commit: Commit, taker: Incarnation
) -> None:
    """Record that a commit is about to be merged into another branch; called before the publish."""
    owner = _find_owner(graph, branch, identity, commit)
    if owner:
        folder = graph.root.layout.bases / f"{_TAKEN}{_format_incarnation(owner)}"
        graph.root.objects.write_text_if_absent(folder / f"{commit.id}-{_format_incarnation(taker)}", "")


def _format_incarnation(identity: Incarnation) -> str:
    return identity[-1][1] if identity else MAIN


def _find_owner(graph: OpenGraph, branch: str, identity: Incarnation, commit: Commit) -> Incarnation:
    """The branch that a commit was made on: this one, or one that it was made from; empty for main."""
    name: str | None = branch
    while name is not None and identity and name != commit.branch:
        fork = graph.root.forks.find(graph.root.layout.manifest, name)
        name, identity = (fork.parent if fork else None), identity[:-1]
    return identity


def _list_takers(graph: OpenGraph, identity: Incarnation) -> dict[str, set[str]]:
    """The commits that were taken from a branch, by the branch that took them."""
    found: dict[str, set[str]] = {}
    for at in graph.root.objects.list_dir(
        graph.root.layout.bases / f"{_TAKEN}{_format_incarnation(identity)}"
    ):
        commit, _, taker = at.name.partition("-")
        found.setdefault(taker, set()).add(commit)
    return found


# --- keeping -------------------------------------------------------------------------------------


def save_bases(
    graph: OpenGraph, held: HeldLocks, branch: str, identity: Incarnation, others: Collection[str]
) -> None:
    """Save the commits of a branch that merges of others may need, before it is deleted.

    `held` has its lock. `others` are the branches that stay, without main.
    """
    objects, layout = graph.root.objects, graph.root.layout
    folders = objects.list_folders(layout.bases)
    if not folders:
        return
    if not others:
        objects.delete_prefix(layout.bases, held)
        return
    notes = f"{_TAKEN}{_format_incarnation(identity)}"
    if notes not in folders:
        return
    takers, state = _list_takers(graph, identity), graph.load(branch).state
    chain = walk_first_parents(state.commits, state.head.id if state.head else None)
    own = [commit for commit in chain if commit.branch == branch]
    _note_origin(graph, branch, identity, state, own)
    for commit in _find_shared_commits(own, takers):
        # Files without the last one, which completes them, are those of a process that died here.
        if commit.id not in folders or read_saved_base(graph, commit.id) is None:
            _save_base(graph, branch, commit)
    objects.delete_prefix(layout.bases / notes)


def _note_origin(
    graph: OpenGraph, branch: str, identity: Incarnation, state: ManifestState, own: list[Commit]
) -> None:
    """Record the commit that the branch began at: commits taken from it descend from that."""
    origin = state.commits.get(own[-1].parent or "") if own else None
    if origin is not None:
        record_taken_commit(graph, branch, identity, origin, identity)


def _find_shared_commits(own: list[Commit], takers: Mapping[str, set[str]]) -> Iterator[Commit]:
    """The commits that one branch took while another one took the same or a later one; newest first."""
    seen: set[str] = set()
    for commit in own:
        here = {taker for taker, taken in takers.items() if commit.id in taken}
        if here and len(seen | here) > 1:
            yield commit
        seen |= here


def _save_base(graph: OpenGraph, branch: str, commit: Commit) -> None:
    try:
        snapshot = graph.snapshot(AtVersion(branch, commit.version))
        catalog = graph.catalog_at(snapshot)
        place = graph.root.layout.bases / commit.id
        graph.root.objects.delete_prefix(place)
        tables = {key: _save_table(graph, snapshot, key, catalog, place) for key in snapshot.entries}
    except HistoricalVersionReclaimed as error:
        _log.info("commit '%s' of branch '%s' is not saved as a base: %s", commit.id, branch, error.message)
        return
    text = msgspec.json.encode(_File(FORMAT, tables)).decode()
    graph.root.objects.write_text(place / _FILE, text)


def _save_table(
    graph: OpenGraph, snapshot: Snapshot, key: str, catalog: Catalog, place: Location
) -> SavedTable:
    entry = snapshot.entries[key]
    if entry.owner is None:
        return SavedTable(entry.path, entry.version, entry.row_count)
    side = _open_side(graph, snapshot, key, catalog)
    version = _version_on_main(graph, side, entry)
    before = _open_side(graph, _on_main(snapshot, key, entry.path, version), key, catalog)
    pairs = compare_sides(before, side)
    changed = pairs.table.filter(pairs.table.column(RIGHT).is_valid())
    deleted = pairs.table.filter(pairs.table.column(RIGHT).is_null()).select([ID])
    name, root = f"{fnv1a64(key)}", graph.root
    if changed.num_rows:
        schema = side.table.schema
        rows = pa.RecordBatchReader.from_batches(schema, _read_batches(side, changed, schema))
        root.tables.create(place / name, schema, primary_key=ID, rows=rows)
    if deleted.num_rows:
        root.tables.create(place / f"{name}-deleted", _IDS, primary_key=ID, rows=deleted.cast(_IDS))
    path = f"{root.layout.bases.name}/{place.name}/{name}"
    return SavedTable(
        entry.path,
        version,
        None,
        path if changed.num_rows else None,
        f"{path}-deleted" if deleted.num_rows else None,
    )


_IDS = pa.schema([pa.field(ID, pa.string(), nullable=False)])


def _read_batches(side: TableSide, changed: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for part in split_rows(changed, (side,), _AT_ONCE):
        rows = side.read_rows(row_ids(part, RIGHT))
        yield from to_writable(rows.select(schema.names), schema).to_batches()


def _version_on_main(graph: OpenGraph, side: TableSide, entry: TableEntry) -> int:
    """The version of main's table at which the line of a fork begins."""
    owner, version = entry.owner, entry.version
    while owner is not None:
        fork = graph.root.forks.find(side.table.location, owner)
        if fork is None:
            raise HistoricalVersionReclaimed(side.key, version)
        owner, version = fork.parent, fork.parent_version
    return version


def _on_main(snapshot: Snapshot, key: str, path: str, version: int) -> Snapshot:
    return Snapshot(MAIN, 0, snapshot.commit, {key: TableEntry(key, path, version, None, None)})


def _open_side(graph: OpenGraph, snapshot: Snapshot, key: str, catalog: Catalog) -> TableSide:
    found = TableSide.of(graph, snapshot, key, catalog)
    if found is None:
        raise HistoricalVersionReclaimed(key, snapshot.entries[key].version)
    return found


# --- reading -------------------------------------------------------------------------------------


def read_saved_base(graph: OpenGraph, commit_id: str) -> SavedBase | None:
    """Read a saved commit; None when it is not saved."""
    place = graph.root.layout.bases / commit_id / _FILE
    text = graph.root.objects.read_text_if_exists(place)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=_File)
    except msgspec.MsgspecError as error:
        raise CorruptGraph(
            f"'{place.name}' of base '{commit_id}' cannot be understood", object_id=commit_id
        ) from error
    if found.format != FORMAT:
        raise CorruptGraph(f"base '{commit_id}' was saved by a newer release", object_id=commit_id)
    return SavedBase(commit_id, found.tables)


def open_saved_sides(
    graph: OpenGraph, kept: SavedBase, commit: Commit, key: str, catalog: Catalog
) -> tuple[TableSide, TableSide, pa.Table] | None:
    """Main's version of a table, the rows that differ, and the places of the entities that do.

    Entities without a place were deleted. None when the commit had no such table.
    """
    table = kept.tables.get(key)
    if table is None:
        return None
    at = Snapshot(MAIN, 0, commit, {})
    stored = _open_side(graph, _on_main(at, key, table.path, table.version), key, catalog)
    places = [PLACES.empty_table()]
    changed = stored
    if table.changed is not None:
        changed = _open_side(graph, _on_main(at, key, table.changed, 1), key, catalog)
        places.append(changed.scan_places())
    if table.deleted is not None:
        gone = graph.root.tables.open(graph.root.layout.table(table.deleted), 1, branch=None)
        ids = gone.scan([ID], ordered=False)
        places.append(ids.append_column(ROW_ID, pa.nulls(ids.num_rows, pa.uint64())).cast(PLACES))
    return stored, changed, pa.concat_tables(places)


# --- cleanup -------------------------------------------------------------------------------------


def list_saved_commits(graph: OpenGraph) -> frozenset[str]:
    """Return the ids of saved commits."""
    folders = graph.root.objects.list_folders(graph.root.layout.bases)
    return frozenset(name for name in folders if not name.startswith(_TAKEN))


def saved_versions(graph: OpenGraph, commits: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield the paths and versions of main's tables that saved commits depend on."""
    for commit_id in sorted(commits):
        kept = read_saved_base(graph, commit_id)
        for table in kept.tables.values() if kept else ():
            yield table.path, table.version


def find_unneeded_bases(graph: OpenGraph, needed: Collection[str]) -> tuple[str, ...]:
    """Return the saved commits that no merge needs."""
    return tuple(sorted(list_saved_commits(graph).difference(needed)))


def remove_bases(graph: OpenGraph, commits: Iterable[str], living: Collection[Incarnation]) -> None:
    """Remove saved commits, and the records about deleted branches."""
    objects, layout = graph.root.objects, graph.root.layout
    notes = {f"{_TAKEN}{_format_incarnation(identity)}" for identity in living}
    stored = (name for name in objects.list_folders(layout.bases) if name.startswith(_TAKEN))
    for name in (*commits, *(one for one in stored if one not in notes)):
        objects.delete_prefix(layout.bases / name)
