"""Create, list and delete branches.

A branch exists exactly when its reference on the manifest does. Creating one writes that reference and
touches no table, so it costs the same for any graph. Neither creating nor deleting is a commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.branch_names import SCHEMA_APPLY_LOCK, parse_branch_name
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.migrations import open_current_manifest
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.table_forks import (
    ForkPlace,
    ForkStatus,
    has_fork_files,
    reclaim_fork,
    remove_fork,
)
from omnigraph.errors import (
    BadRequest,
    BranchExists,
    BranchInUse,
    BranchNotFound,
    Conflict,
    InternalError,
    InvalidName,
    OmnigraphError,
    SchemaApplyBlocked,
    StorageFailure,
    WriterBusy,
)
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.forks import list_with_ancestors
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.references import Fork, Incarnation, Survey, damaged_reference_error
from omnigraph.storage.tables import Table

_PARALLEL_RECLAIMS = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A branch and where it began."""

    name: str
    source: str | None
    """The branch it was made from; None for main."""
    source_version: int | None
    """The version of the source's manifest it began at; None for main."""
    identity: Incarnation
    """The incarnation of the branch."""


_MAIN_INFO = BranchInfo(MAIN, None, None, ())


# --- names ---------------------------------------------------------------------------------------


def _new_branch_name(text: str) -> str:
    name = parse_branch_name(text)
    if name == MAIN:
        raise InvalidName(name, f"'{MAIN}' is the branch every graph has", remedy="choose another name")
    return name


# --- listing -------------------------------------------------------------------------------------


def list_branches(graph: OpenGraph) -> list[BranchInfo]:
    """Return main, then the others by name; of one with a damaged reference only the name is known."""
    found = graph.root.forks.survey(graph.root.layout.manifest, refresh=not graph.read_only)
    infos = {name: BranchInfo(name, None, None, ()) for name in found.broken}
    infos |= {name: _build_info(fork) for name, fork in found.forks.items()}
    return [_MAIN_INFO, *(infos[name] for name in sorted(infos) if name != SCHEMA_APPLY_LOCK)]


def _build_info(fork: Fork) -> BranchInfo:
    return BranchInfo(fork.name, fork.parent or MAIN, fork.parent_version, fork.identity)


# --- creating ------------------------------------------------------------------------------------


def create_branch(
    graph: OpenGraph, name: str, *, from_branch: str = MAIN, actor: str | None = None
) -> BranchInfo:
    """Create a branch at the current head of another one."""
    from omnigraph.engine.branches.tags import refuse_tag_of_that_name
    from omnigraph.engine.commit.recovery.creations import undo_creations_of
    from omnigraph.engine.commit.recovery.sweep import finish_completed_writes

    root, new, source = graph.root, _new_branch_name(name), parse_branch_name(from_branch)
    graph.permissions.require("branch_create", branch=source, target=new, actor=actor)
    _refuse_read_only(graph)
    finish_completed_writes(graph)
    with _lock_branches(root, "branch create", [source, *list_with_ancestors(new)], creating=[new]) as held:
        undo_creations_of(graph, held, new)
        live = _list_live(graph, "branch create", held)
        _refuse_taken(new, live.names)
        refuse_tag_of_that_name(graph, new)
        incarnation = _read_incarnation(root, source, live)
        begins_as = graph.load(source) if graph.coordinator(source).is_warm else None
        table = open_current_manifest(root, source, held, begins_as.table if begins_as else None)
        if has_fork_files(root, root.layout.manifest, new):
            # A creation or deletion that was interrupted: there is no reference, and we hold the lock.
            held.require()
            root.forks.remove_residue(root.layout.manifest, new, held)
        made, manifest = _create_fork(root, held, table, incarnation, new)
        graph.forget(new)
        _take_back_during_schema_apply(root, held, new)
        if manifest is not None and begins_as is not None and table is begins_as.table:
            # It has the rows of its source, so they need not be read again.
            graph.coordinator(new).adopt(replace(begins_as, table=manifest, identity=made.identity))
        failpoints.reach(failpoints.BRANCH_CREATE_AFTER_MANIFEST_BRANCH_CREATE)
    return _build_info(made)


def create_branch_at(graph: OpenGraph, name: str, at: Snapshot, *, actor: str | None = None) -> BranchInfo:
    """Create a branch at the commit of a snapshot, however old, as long as its rows are stored."""
    from omnigraph.engine.branches.old_commits import find_old_commit, fork_at_commit, require_same_schema
    from omnigraph.engine.branches.tags import refuse_tag_of_that_name
    from omnigraph.engine.commit.recovery.creations import undo_creations_of
    from omnigraph.engine.commit.recovery.sweep import finish_completed_writes

    root, new = graph.root, _new_branch_name(name)
    if at.commit is None:
        raise BadRequest(f"'{at.id}' has no commit to begin at", remedy="name a commit")
    old = find_old_commit(graph, at, at.commit)
    graph.permissions.require("branch_create", branch=old.source, target=new, actor=actor)
    _refuse_read_only(graph)
    finish_completed_writes(graph)
    owners = {entry.owner or MAIN for entry in old.snapshot.entries.values()}
    locked = [MAIN, old.source, *owners, *list_with_ancestors(new)]
    with _lock_branches(root, "branch create", locked, creating=[new]) as held:
        undo_creations_of(graph, held, new)
        live = _list_live(graph, "branch create", held)
        _refuse_taken(new, live.names)
        refuse_tag_of_that_name(graph, new)
        if _read_incarnation(root, old.source, live) != old.snapshot.incarnation:
            raise BranchNotFound(old.source)
        require_same_schema(graph, old)
        table = open_current_manifest(root, old.source, held)
        if has_fork_files(root, root.layout.manifest, new):
            held.require()
            root.forks.remove_residue(root.layout.manifest, new, held)
        made = fork_at_commit(graph, held, graph.load(old.source), table, old, new)
        graph.forget(new)
        _take_back_during_schema_apply(root, held, new)
    return _build_info(made)


def _refuse_taken(name: str, live: Collection[str]) -> None:
    if name in live:
        raise BranchExists(name)
    for other in sorted(live):
        if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
            raise InvalidName(
                name,
                f"branch name '{name}' cannot be used beside branch '{other}': one is below the other",
                remedy="choose another name",
            )


def _read_incarnation(root: Root, branch: str, live: Survey) -> Incarnation:
    if branch == MAIN:
        return ()
    if branch in live.broken:
        raise damaged_reference_error(root.layout.manifest, branch)
    if branch not in live.forks:
        raise BranchNotFound(branch)
    return live.forks[branch].identity


def _create_fork(
    root: Root, held: HeldLocks, source: Table, incarnation: Incarnation, name: str
) -> tuple[Fork, Table | None]:
    """Create the branch; its manifest is None when another writer may have created it."""
    held.require()
    try:
        manifest = root.forks.create(source, name)
    except StorageFailure as failure:
        return _confirm_created(root, source, incarnation, name, failure), None
    made = root.forks.find(root.layout.manifest, name)
    if made is None:
        raise InternalError(f"branch '{name}' was created but does not exist")
    return made, manifest if _began_at(made, source, incarnation) else None


def _began_at(made: Fork, source: Table, incarnation: Incarnation) -> bool:
    """Whether a branch was created from exactly this manifest: a rival may have used its name."""
    return (made.parent, made.parent_version, made.identity[:-1]) == (
        source.branch,
        source.version,
        incarnation,
    )


def _confirm_created(
    root: Root, source: Table, incarnation: Incarnation, name: str, failure: StorageFailure
) -> Fork:
    """Read from the reference whether a branch was created whose answer was lost."""
    try:
        made = root.forks.find(root.layout.manifest, name)
    except StorageFailure as second:
        raise failure from second
    if made is None or not _began_at(made, source, incarnation) or failure.kind == TableFailureKind.CONFLICT:
        raise failure
    return made


# --- deleting ------------------------------------------------------------------------------------


def delete_branch(
    graph: OpenGraph, name: str, *, active: str | None = None, actor: str | None = None
) -> None:
    """Delete a branch that nothing else depends on; `active` is the one the caller works on."""
    graph.permissions.require("branch_delete", target=parse_branch_name(name), actor=actor)
    _delete_branch(graph, name, active, lambda: True)


def undo_create(graph: OpenGraph, name: str, wanted: Callable[[], bool]) -> None:
    """Delete a branch that was made for a write which failed; to make it was allowed, so to undo it is."""
    _delete_branch(graph, name, None, wanted)


def _delete_branch(graph: OpenGraph, name: str, active: str | None, wanted: Callable[[], bool]) -> None:
    """Delete a branch.

    `wanted` is called under the lock and may cancel the delete. Once its reference is removed the branch is
    deleted. Its table forks are then removed as far as possible; cleanup removes those that remain.
    """
    from omnigraph.engine.branches.kept_commits import keep_tagged_commits
    from omnigraph.engine.branches.saved_bases import save_bases

    root, name = graph.root, parse_branch_name(name)
    _refuse_read_only(graph)
    if name == MAIN:
        raise InvalidName(
            name,
            f"branch '{MAIN}' cannot be deleted",
            remedy="restore an older state with `omnigraph reset`, or remove the folder of the graph",
        )
    if active is not None and name == active.strip():
        raise Conflict(
            f"branch '{name}' cannot be deleted: it is the active branch",
            remedy="switch to another one first",
        )
    with _lock_branches(root, "branch delete", list_with_ancestors(name)) as held:
        live = _list_live(graph, "branch delete", held)
        if name not in live.names:
            raise BranchNotFound(name)
        if not wanted():
            return
        _refuse_unknown(root, live.broken - {name})
        _refuse_depended_on(graph, name, live)
        owned = _owned_forks(graph, name)
        if name in live.forks:
            keep_tagged_commits(graph, held, name)
            save_bases(graph, held, name, live.forks[name].identity, live.names - {name})
        try:
            held.require()
            held.mark_deleted(name)
            _remove_reference(root, held, name)
        finally:
            graph.forget(name)
            root.tables.forget()
        failpoints.reach(failpoints.BRANCH_DELETE_POST_NATIVE)
        _reclaim_all(root, held, owned, sorted(live.names - {name}))


def _refuse_unknown(root: Root, damaged: Collection[str]) -> None:
    """Refuse while another branch has a damaged reference: what it was created from is unknown."""
    if damaged:
        raise damaged_reference_error(root.layout.manifest, min(damaged))


def _refuse_depended_on(graph: OpenGraph, name: str, live: Survey) -> None:
    """Refuse to delete a branch that others descend from, or of which main shows a table.

    The owner of an entry is main, the branch itself, or a branch that it descends from: a new branch has the
    entries of its source, and every publish sets the owner to the branch or to main, or leaves it as it was.
    A merge, too, points at nothing but main's tables (`merge/standing.py`). So the references say which
    branches can show tables of this one, and no other branch is read, however many there are. Main descends
    from none; it is read because that costs the same with any number, and to lose one of its tables would be
    the worst.
    """
    dependants = _list_descendants(name, live)
    if any(entry.owner == name for entry in graph.load(MAIN).state.entries().values()):
        dependants.add(MAIN)
    if dependants:
        raise BranchInUse(name, sorted(dependants))


def _list_descendants(name: str, live: Survey) -> set[str]:
    """The branches that were made from one, directly or not.

    By its name for its children, also where its own reference is damaged; by its incarnation for those whose
    parent was removed outside omnigraph.
    """
    own = live.forks.get(name)
    found = {fork.name for fork in live.forks.values() if fork.parent == name}
    if own is not None:
        length = len(own.identity)
        found |= {fork.name for fork in live.forks.values() if fork.identity[:length] == own.identity}
    return found - {name}


def _owned_forks(graph: OpenGraph, name: str) -> list[ForkPlace]:
    """The forks a branch is known to have; a branch that cannot be read can still be deleted."""
    try:
        state = graph.load(name).state
    except (BranchNotFound, InternalError) as error:
        _log.warning("branch '%s' cannot be read, its tables' forks are left to cleanup: %s", name, error)
        return []
    layout = graph.root.layout
    return [
        ForkPlace(key, layout.table(state.locations[key]), name)
        for key, pinned in sorted(state.versions.items())
        if pinned.owner == name and key in state.locations
    ]


def _remove_reference(root: Root, held: HeldLocks, name: str) -> None:
    manifest = root.layout.manifest
    try:
        remove_fork(root, held, manifest, name)
    except StorageFailure as failure:
        if root.forks.find(manifest, name) is not None:
            raise
        _log.warning("branch '%s' is deleted, some of its files are left: %s", name, failure)


def _reclaim_all(root: Root, held: HeldLocks, forks: list[ForkPlace], live: list[str]) -> None:
    """Remove the forks of a deleted branch; a failure is logged and left to cleanup."""

    def one(place: ForkPlace) -> None:
        try:
            failpoints.reach(failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP)
            standing = reclaim_fork(root, held, place, live=live)
        except OmnigraphError as error:
            _log.warning("the %s is left to cleanup: %s", place, error)
        else:
            if standing is not ForkStatus.ORPHAN:
                _log.warning("the %s is left to cleanup: %s", place, standing)

    if forks:
        with ThreadPoolExecutor(_PARALLEL_RECLAIMS) as pool:
            list(pool.map(one, forks))


# --- common to both ------------------------------------------------------------------------------


def _refuse_read_only(graph: OpenGraph) -> None:
    if graph.read_only:
        raise BadRequest(f"'{graph.root.uri}' is open read-only", remedy="open it for writing")


def _lock_branches(
    root: Root, operation: str, branches: list[str], creating: Sequence[str] = ()
) -> HeldLocks:
    from omnigraph.engine.commit import schema_lock

    try:
        return root.locks.hold(branches, creating=creating)
    except WriterBusy as busy:
        if schema_lock.find_lock(root) is None:
            raise
        raise _blocked_error(operation) from busy


def _list_live(graph: OpenGraph, operation: str, held: HeldLocks) -> Survey:
    """The references of all branches but main; refused while a schema apply runs."""
    from omnigraph.engine.commit import schema_lock

    live = _survey_branches(graph.root)
    if SCHEMA_APPLY_LOCK not in live.names:
        return live
    if MAIN in held.branches:
        schema_lock.recover_stale_lock(graph, held)
    elif not schema_lock.recover_stale_lock_if_free(graph):
        raise _blocked_error(operation)
    return _survey_branches(graph.root)


def _survey_branches(root: Root) -> Survey:
    return root.forks.survey(root.layout.manifest, refresh=True)


def _take_back_during_schema_apply(root: Root, held: HeldLocks, made: str) -> None:
    """Undo the creation if a schema apply began meanwhile, which is possible after losing a lease."""
    from omnigraph.engine.commit import schema_lock

    if schema_lock.find_lock(root) is not None:
        remove_fork(root, held, root.layout.manifest, made)
        raise _blocked_error("branch create")


def _blocked_error(operation: str) -> SchemaApplyBlocked:
    return SchemaApplyBlocked(
        f"{operation} is unavailable while schema apply is in progress",
        remedy="try again when it is done",
    )
