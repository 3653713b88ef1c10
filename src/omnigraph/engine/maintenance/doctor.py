"""Find what is wrong with a graph, without changing anything.

Other processes may write meanwhile, so whatever could be a write in progress is checked again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from omnigraph.engine.commit.recovery.creations import read_creation
from omnigraph.engine.commit.recovery.forecast import RecoveryForecast, forecast_recovery
from omnigraph.engine.commit.recovery.removals import pending_removals, read_removal
from omnigraph.engine.commit.recovery.sidecar import creations_among, list_names
from omnigraph.engine.constraints.edge_rules import (
    BelowMinimum,
    find_nodes_below_minimum,
    list_edges_with_minimum,
)
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.layout import table_key, table_keys
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.tags import (
    COMMIT_FILE,
    list_kept_commits,
    read_kept_commit,
    survey_tags,
    tag_location,
)
from omnigraph.engine.maintenance.cleanup.needed_versions import (
    NeededVersions,
    find_merge_bases,
    find_needed_versions,
    read_tagged,
)
from omnigraph.engine.maintenance.cleanup.old_versions import find_old_versions, is_branch_gone
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.staged_files import find_staged_loads
from omnigraph.engine.maintenance.cleanup.stray_forks import (
    StrayFork,
    find_partial_branches,
    find_stored_tables,
    find_strays_of_table,
)
from omnigraph.engine.maintenance.cleanup.unneeded_tables import (
    DroppedTable,
    find_dropped_tables,
    find_orphan_tables,
    is_old_enough,
)
from omnigraph.engine.maintenance.drift_check import MAX_LOOKS, OwnTable, find_drift, open_own_tables
from omnigraph.engine.maintenance.health import (
    DerivedFiles,
    Health,
    IndexReport,
    LastWriter,
    MovedFork,
    OrphanTable,
    OwedRemoval,
    PendingIndex,
    UnreadableFile,
    UnreadablePart,
    VersionCount,
)
from omnigraph.engine.upkeep.declared_indexes import declared_indexes
from omnigraph.engine.upkeep.index_catch_up import DueIndex, find_refusal
from omnigraph.engine.upkeep.index_upkeep import columns_of, expects_indexes, find_due_on_table
from omnigraph.errors import (
    BranchNotFound,
    CorruptGraph,
    HistoricalVersionReclaimed,
    InternalError,
    OmnigraphError,
    StorageFailure,
)
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.storage.forks import list_with_ancestors
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.indexes import RefusedIndex, read_coverage
from omnigraph.storage.tables import Table

_MOST_VECTORS = 256 << 20
"""At most this many bytes of vectors are read to explain why an index is missing; `optimize` reads all."""


def examine(graph: OpenGraph) -> Health:
    """Examine every branch and table of a graph; what cannot be read is reported, and the rest is examined.

    It starts again when a branch is deleted meanwhile.
    """
    while True:
        records = tuple(forecast_recovery(graph))
        branches, unread = _load_branches(graph)
        try:
            return _examine_branches(graph, records, branches, unread)
        except StorageFailure:
            if not any(is_branch_gone(graph, branch, loaded.identity) for branch, loaded in branches.items()):
                raise


def _examine_branches(
    graph: OpenGraph,
    records: tuple[RecoveryForecast, ...],
    branches: Mapping[str, LoadedBranch],
    unread: Sequence[UnreadablePart],
) -> Health:
    tables, missing = open_own_tables(graph, branches)
    unreadable = {one.branch for one in unread}
    forks, unlisted = _find_strays(graph, branches, unreadable)
    reported = {one.key for one in missing}
    bases = find_merge_bases({branch: loaded.state for branch, loaded in branches.items()})
    tagged, pinned = read_tagged(graph, skip_broken=True)
    policy = CleanupPolicy(1, None, 0.0)
    needed = find_needed_versions(branches, policy, graph.root.clock(), bases | tagged, pinned)
    below, uncounted = _find_below_minimum(graph, branches, reported)
    return Health(
        records,
        (*unread, *missing, *(one for one in unlisted if one.key not in reported), *uncounted),
        tuple(find_drift(graph, tables, records)),
        tuple(forks),
        tuple(_find_last_writers(graph, branches)),
        tuple(_report_indexes(tables)),
        tuple(_find_pending(graph, branches, tables)),
        tuple(_count_versions(graph, branches, needed)),
        tuple(_find_dropped(graph, branches, needed)),
        # What an unreadable branch publishes is unknown.
        () if unreadable else tuple(_find_orphans(graph, branches)),
        _measure_derived(graph),
        tuple(_find_owed_removals(graph)),
        tuple(below),
        tuple(_find_moved_forks(graph)),
        tuple(find_staged_loads(graph)),
        tuple(_find_unreadable_files(graph)),
    )


def _find_unreadable_files(graph: OpenGraph) -> Iterator[UnreadableFile]:
    """Yield what stops no other command, and so is noticed here."""
    recovery = graph.root.layout.recovery
    for name in creations_among(list_names(graph.root)):
        try:
            read_creation(graph.root, recovery / name)
        except CorruptGraph as error:
            yield UnreadableFile(f"{recovery.name}/{name}", error.message, error.remedy or "")
    for tag, broken in survey_tags(graph.root).broken.items():
        at = f"{graph.root.layout.tags.name}/{tag_location(graph.root, tag).name}"
        yield UnreadableFile(at, broken.message, broken.remedy or "")
    for commit_id in sorted(list_kept_commits(graph.root)):
        try:
            read_kept_commit(graph.root, commit_id)
        except CorruptGraph as error:
            at = f"{graph.root.layout.tags.name}/{commit_id}/{COMMIT_FILE}"
            yield UnreadableFile(at, error.message, "delete the tags of that commit, or restore the file")


def _find_moved_forks(graph: OpenGraph) -> Iterator[MovedFork]:
    """Yield the opened forks that record another location, by path."""
    for uri, recorded in sorted(graph.root.tables.access.relocated.items()):
        yield MovedFork(uri.removeprefix(f"{graph.root.uri}/"), recorded)


def _load_branches(graph: OpenGraph) -> tuple[dict[str, LoadedBranch], list[UnreadablePart]]:
    branches, unread = {}, []
    for branch in graph.branch_names():
        # It may be deleted while the others are examined.
        with suppress(BranchNotFound):
            try:
                branches[branch] = graph.load(branch)
            except (InternalError, StorageFailure) as error:
                unread.append(UnreadablePart(branch, None, error.message))
    return branches, unread


def _find_below_minimum(
    graph: OpenGraph, branches: Mapping[str, LoadedBranch], unread: Collection[str | None]
) -> tuple[list[BelowMinimum], list[UnreadablePart]]:
    """Return nodes with too few edges, and the branches where they could not be counted.

    An unreadable table is reported already. Versions that several branches publish are counted once.
    """
    found: list[BelowMinimum] = []
    failed: list[UnreadablePart] = []
    try:
        edges = [] if unread else list_edges_with_minimum(graph.schema().catalog)
    except InternalError as error:
        return found, [UnreadablePart(MAIN, None, error.message)]
    counted: set[tuple[object, ...]] = set()
    for branch in sorted(branches if edges else (), key=lambda name: (name != MAIN, name)):
        entries = branches[branch].state.entries()
        for edge in edges:
            versions = _shown_versions(entries, edge)
            if versions is None or versions in counted:
                continue
            counted.add(versions)
            try:
                found += _count_edges(graph, branch, edge)
            except InternalError as error:
                failed.append(UnreadablePart(branch, table_key("edge", edge.name), error.message))
    return found, failed


def _shown_versions(entries: Mapping[str, TableEntry], edge: EdgeType) -> tuple[object, ...] | None:
    """Return the versions of both tables that a branch publishes; None when it has no such tables."""
    keys = table_key("edge", edge.name), table_key("node", edge.source)
    if not all(key in entries for key in keys):
        return None
    return tuple((key, entries[key].owner, entries[key].version) for key in keys)


def _count_edges(graph: OpenGraph, branch: str, edge: EdgeType) -> list[BelowMinimum]:
    """Return the nodes of a branch with too few edges; none when it is deleted or changes all the time."""
    for _ in range(MAX_LOOKS):
        with suppress(HistoricalVersionReclaimed, BranchNotFound):
            found = find_nodes_below_minimum(graph, graph.snapshot(AtBranch(branch)), edge)
            return [found] if found.count else []
    return []


def _count_versions(
    graph: OpenGraph, branches: Mapping[str, LoadedBranch], needed: NeededVersions
) -> list[VersionCount]:
    """Count versions from listings; the bytes they take are only known by reading every version."""
    try:
        olds = find_old_versions(graph, branches, needed)
    except StorageFailure:
        return []  # a table that cannot be read is reported elsewhere
    return [VersionCount(old.key, old.place.branch, old.stored, len(old.versions)) for old in olds]


def _find_dropped(
    graph: OpenGraph, branches: Mapping[str, LoadedBranch], needed: NeededVersions
) -> list[DroppedTable]:
    try:
        return find_dropped_tables(graph, branches, needed) if MAIN in branches else []
    except StorageFailure:
        return []  # reported elsewhere too


def _find_orphans(graph: OpenGraph, branches: Mapping[str, LoadedBranch]) -> Iterator[OrphanTable]:
    for path in find_orphan_tables(graph, branches.values()):
        yield OrphanTable(path, is_old_enough(graph, path))


def _find_owed_removals(graph: OpenGraph) -> Iterator[OwedRemoval]:
    """Yield removals that schema changes left; a process that holds main's lock may be removing them now."""
    owed = pending_removals(list_names(graph.root))
    if not owed or graph.root.taken(MAIN) is not None:
        return
    for operation_id in owed:
        try:
            removal = read_removal(graph.root, operation_id)
        except CorruptGraph:
            yield OwedRemoval(operation_id, ())
        else:
            if removal is not None:
                yield OwedRemoval(operation_id, tuple(one.table_key for one in removal.tables))


def _measure_derived(graph: OpenGraph) -> DerivedFiles:
    sizes = graph.root.objects.list_sizes(graph.root.layout.derived)
    return DerivedFiles(len(sizes), sum(sizes.values()))


def _find_strays(
    graph: OpenGraph, branches: Mapping[str, LoadedBranch], unreadable: Collection[str]
) -> tuple[list[StrayFork], list[UnreadablePart]]:
    """Return stray forks, also of dropped types, and the tables whose forks cannot be listed.

    What unreadable branches publish is unknown, so their forks are skipped.
    """
    found, unread = [], []
    for key, at in find_stored_tables(graph.root, branches).items():
        try:
            strays = list(find_strays_of_table(graph.root, branches, key, at))
        except StorageFailure as failure:
            unread.append(UnreadablePart(MAIN, key, failure.message))
        else:
            found += [stray for stray in strays if stray.branch not in unreadable]
    return _confirm_strays(graph, [*found, *find_partial_branches(graph.root)]), unread


def _confirm_strays(graph: OpenGraph, seen: Sequence[StrayFork]) -> list[StrayFork]:
    """Return the stray forks that no process uses: forks only change under the lock of their branch."""
    free = [stray for stray in seen if not _is_taken(graph, stray.branch)]
    if not free:
        return []
    branches, _ = _load_branches(graph)
    places = find_stored_tables(graph.root, branches)
    keys = {stray.key for stray in free} & places.keys()
    again = [stray for key in keys for stray in find_strays_of_table(graph.root, branches, key, places[key])]
    still = {*again, *find_partial_branches(graph.root)}
    return [stray for stray in free if stray in still]


def _is_taken(graph: OpenGraph, branch: str) -> bool:
    return any(graph.root.taken(name) for name in list_with_ancestors(branch))


def _find_last_writers(graph: OpenGraph, branches: Iterable[str]) -> list[LastWriter]:
    holders = ((branch, graph.root.locks.last_holder(branch)) for branch in branches)
    return [
        LastWriter(branch, str(holder.owner), holder.operation_id)
        for branch, holder in holders
        if holder is not None
    ]


def _report_indexes(tables: Sequence[OwnTable]) -> Iterator[IndexReport]:
    for one in tables:
        if one.shown is not None:
            yield from (
                IndexReport(one.entry.key, one.branch, index) for index in read_coverage(one.shown).values()
            )


def _find_pending(
    graph: OpenGraph, branches: Mapping[str, LoadedBranch], tables: Sequence[OwnTable]
) -> Iterator[PendingIndex]:
    """Yield the indexes that are due, as the result of a write reports them."""
    try:
        catalog = graph.schema().catalog
    except OmnigraphError:
        return  # opening the graph reports this
    known = frozenset(table_keys(catalog))
    for one in tables:
        if one.shown is not None and one.entry.key in known:
            key, asked = one.entry.key, declared_indexes(catalog, one.entry.key)
            expected = expects_indexes(graph.root, branches[one.branch].state, key, one.shown)
            due = find_due_on_table(asked, one.shown, dropped=expected)
            if due:
                yield PendingIndex(key, one.branch, columns_of(due), _explain_refusals(one.shown, due))


def _explain_refusals(table: Table, due: Sequence[DueIndex]) -> tuple[RefusedIndex, ...]:
    every = frozenset(piece.id for piece in list_fragments(table))
    outside = ((one.wish, every - (one.stored.covered if one.stored else frozenset())) for one in due)
    found = (find_refusal(table, wish, pieces, most_bytes=_MOST_VECTORS) for wish, pieces in outside)
    return tuple(one for one in found if one is not None)
