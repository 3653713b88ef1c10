"""Branches of a graph: what they may be called, and making, listing and deleting them.

Whether a branch exists is told by its reference on the manifest and by nothing else. Making one writes
that reference and touches no table, so it costs the same whatever the graph holds. Neither making nor
deleting is a commit.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from urllib.parse import quote

from omnigraph import failpoints
from omnigraph.engine.forks import ForkPlace, Standing, has_files, reclaim, remove_fork
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.migrations import current_manifest
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery.sweep import heal
from omnigraph.engine.root import Root
from omnigraph.engine.schema_apply import lock as schema_lock
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
from omnigraph.storage.fork_files import with_those_above
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.locks import Held
from omnigraph.storage.references import Fork, Identity, Survey, not_understood
from omnigraph.storage.tables import Table

SCHEMA_APPLY_LOCK = schema_lock.LOCK_BRANCH
"""There while a schema apply runs; it is nobody's branch."""
LONGEST_NAME = 200
"""Bytes, `/` counting as three: a whole name becomes the name of one file, with an ending."""

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")
_LISTING_ATTEMPTS = 3
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
    identity: Identity
    """Which life of the name this is."""


_MAIN_INFO = BranchInfo(MAIN, None, None, ())


# --- names ---------------------------------------------------------------------------------------


def branch_name(text: str) -> str:
    """The name of a branch as a user means it, main included; refuses what no branch can be called."""
    given: object = text
    if not isinstance(given, str):
        raise InvalidName(repr(given), f"the name of a branch is a text, not {type(given).__name__}")
    name = given.strip()
    if not name:
        raise InvalidName(text, "the name of a branch must not be empty")
    if name == SCHEMA_APPLY_LOCK:
        raise InvalidName(name, f"'{name}' is reserved for schema changes", remedy="choose another name")
    if len(quote(name, safe="")) > LONGEST_NAME:
        raise InvalidName(
            name,
            f"branch name '{name[:40]}...' is too long",
            remedy=f"use at most {LONGEST_NAME} characters, counting '/' as 3",
        )
    for segment in name.split("/"):
        _check_segment(name, segment)
    if name.endswith(".lock"):
        raise InvalidName(name, f"branch name '{name}' must not end with '.lock'")
    if name.startswith(f"{MAIN}/"):
        raise InvalidName(name, f"branch name '{name}' is below '{MAIN}'", remedy="choose another first part")
    return name


def _check_segment(name: str, segment: str) -> None:
    if not segment:
        raise InvalidName(
            name, f"branch name '{name}' has an empty part", remedy="use single '/' inside only"
        )
    if not _SEGMENT.fullmatch(segment):
        raise InvalidName(
            name,
            f"branch name {name!r} has characters that are not allowed",
            remedy="use letters, digits, '.', '_' and '-', with '/' between parts",
        )
    if segment == "." or ".." in segment:
        raise InvalidName(name, f"branch name '{name}' must not have '.' as a part, nor '..'")


def _new_branch_name(text: str) -> str:
    name = branch_name(text)
    if name == MAIN:
        raise InvalidName(name, f"'{MAIN}' is the branch every graph has", remedy="choose another name")
    return name


# --- listing -------------------------------------------------------------------------------------


def list_branches(graph: OpenGraph) -> list[BranchInfo]:
    """Main, then the others by name; of one whose reference is damaged nothing else is known."""
    found = _references(graph.root)
    told = {name: BranchInfo(name, None, None, ()) for name in found.broken}
    told |= {name: _info(fork) for name, fork in found.forks.items()}
    return [_MAIN_INFO, *(told[name] for name in sorted(told) if name != SCHEMA_APPLY_LOCK)]


def _references(root: Root) -> Survey:
    """The references of all branches but main; a branch deleted while they are read starts it anew."""
    for _ in range(_LISTING_ATTEMPTS - 1):
        try:
            return root.forks.survey(root.layout.manifest)
        except StorageFailure as failure:
            if failure.kind not in (Trouble.NOT_FOUND, Trouble.RECLAIMED):
                raise
    return root.forks.survey(root.layout.manifest)


def _info(fork: Fork) -> BranchInfo:
    return BranchInfo(fork.name, fork.parent or MAIN, fork.parent_version, fork.identity)


# --- creating ------------------------------------------------------------------------------------


def create_branch(graph: OpenGraph, name: str, *, from_branch: str = MAIN) -> BranchInfo:
    """Make a branch that begins where another one is now."""
    root, new, source = graph.root, _new_branch_name(name), branch_name(from_branch)
    _refuse_read_only(graph)
    heal(graph)
    with _locked(root, "branch create", [source, *with_those_above(new)], creating=[new]) as held:
        live = _live(graph, "branch create", held)
        _refuse_taken(new, live.names)
        life = _life(root, source, live)
        begins_as = graph.load(source) if graph.coordinator(source).is_warm else None
        table = current_manifest(root, source, held, begins_as.table if begins_as else None)
        if has_files(root, root.layout.manifest, new):
            # A creation or deletion that was interrupted: there is no reference, and we hold the lock.
            held.require()
            root.forks.remove_residue(root.layout.manifest, new)
        made, manifest = _make(root, held, table, life, new)
        graph.forget(new)
        _take_back_during_schema_apply(root, new)
        if manifest is not None and begins_as is not None and table is begins_as.table:
            # It has the rows of its source, so nobody needs to read them again.
            graph.coordinator(new).adopt(replace(begins_as, table=manifest, identity=made.identity))
        failpoints.reach(failpoints.BRANCH_CREATE_AFTER_MANIFEST_BRANCH_CREATE)
    return _info(made)


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


def _life(root: Root, branch: str, live: Survey) -> Identity:
    if branch == MAIN:
        return ()
    if branch in live.broken:
        raise not_understood(root.layout.manifest, branch)
    if branch not in live.forks:
        raise BranchNotFound(branch)
    return live.forks[branch].identity


def _make(root: Root, held: Held, source: Table, life: Identity, name: str) -> tuple[Fork, Table | None]:
    """The branch and its manifest; None for that when nobody can be sure whose it is."""
    held.require()
    try:
        manifest = root.forks.create(source, name)
    except StorageFailure as failure:
        return _settled(root, source, life, name, failure), None
    made = root.forks.find(root.layout.manifest, name)
    if made is None:
        raise InternalError(f"branch '{name}' was made and is not there")
    return made, manifest if _began_at(made, source, life) else None


def _began_at(made: Fork, source: Table, life: Identity) -> bool:
    """Whether a branch was made from exactly this manifest: a rival may have used its name."""
    return (made.parent, made.parent_version, made.identity[:-1]) == (source.branch, source.version, life)


def _settled(root: Root, source: Table, life: Identity, name: str, failure: StorageFailure) -> Fork:
    """The branch may have been made although the answer was lost: only its reference can tell."""
    try:
        made = root.forks.find(root.layout.manifest, name)
    except StorageFailure as second:
        raise failure from second
    if made is None or not _began_at(made, source, life) or failure.kind == Trouble.CONFLICT:
        raise failure
    return made


# --- deleting ------------------------------------------------------------------------------------


def delete_branch(
    graph: OpenGraph, name: str, *, active: str | None = None, wanted: Callable[[], bool] = lambda: True
) -> None:
    """Delete a branch that nothing else depends on; `active` is the one the caller works on.

    Whether that is still `wanted` is asked once nobody else can write to it. Once its reference is gone the
    branch is deleted. What then remains of its tables' forks is removed as far as possible; cleanup removes
    the rest.
    """
    root, name = graph.root, branch_name(name)
    _refuse_read_only(graph)
    if name == MAIN:
        raise InvalidName(name, f"branch '{MAIN}' cannot be deleted")
    if active is not None and name == active.strip():
        raise Conflict(
            f"branch '{name}' cannot be deleted: it is the active branch",
            remedy="switch to another one first",
        )
    with _locked(root, "branch delete", with_those_above(name)) as held:
        live = _live(graph, "branch delete", held)
        if name not in live.names:
            raise BranchNotFound(name)
        if not wanted():
            return
        _refuse_unknown(root, live.broken - {name})
        _refuse_depended_on(graph, name, live.forks)
        owned = _owned(graph, name)
        try:
            held.require()
            held.mark_deleted(name)
            _remove_reference(root, name)
        finally:
            graph.forget(name)
            root.tables.forget()
        failpoints.reach(failpoints.BRANCH_DELETE_POST_NATIVE)
        _reclaim_all(root, held, owned, sorted(live.names - {name}))


def _refuse_unknown(root: Root, damaged: Collection[str]) -> None:
    """Of a branch whose reference is damaged nobody knows what it was made from: it has to go first."""
    if damaged:
        raise not_understood(root.layout.manifest, min(damaged))


def _refuse_depended_on(graph: OpenGraph, name: str, live: Mapping[str, Fork]) -> None:
    """Others depend on a branch that were made from it, or that show tables it holds."""
    dependants = {other.name for other in live.values() if other.parent == name}
    for branch in (MAIN, *live):
        if branch != name and branch not in dependants and _shows_tables_of(graph, branch, name, live):
            dependants.add(branch)
    if dependants:
        raise BranchInUse(name, sorted(dependants))


def _shows_tables_of(graph: OpenGraph, branch: str, owner: str, live: Mapping[str, Fork]) -> bool:
    try:
        state = graph.load(branch).state
    except BranchNotFound:
        return False  # deleted since it was listed
    except InternalError:
        if branch == MAIN:
            raise
        # It cannot be read. It shows tables of branches that it was made from, directly or not, and of main.
        # Of an owner whose reference is damaged nobody knows which life it is: it may be any.
        life = live[owner].identity if owner in live else ()
        return live[branch].identity[: len(life)] == life
    return any(entry.owner == owner for entry in state.entries().values())


def _owned(graph: OpenGraph, name: str) -> list[ForkPlace]:
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


def _remove_reference(root: Root, name: str) -> None:
    manifest = root.layout.manifest
    try:
        remove_fork(root, manifest, name)
    except StorageFailure as failure:
        if root.forks.find(manifest, name) is not None:
            raise
        _log.warning("branch '%s' is deleted, some of its files are left: %s", name, failure)


def _reclaim_all(root: Root, held: Held, forks: list[ForkPlace], live: list[str]) -> None:
    """Remove the forks of a branch that is gone; a failure leaves one to cleanup and fails nobody."""

    def one(place: ForkPlace) -> None:
        try:
            failpoints.reach(failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP)
            standing = reclaim(root, held, place, live=live)
        except OmnigraphError as error:
            _log.warning("the %s is left to cleanup: %s", place, error)
        else:
            if standing is not Standing.ORPHAN:
                _log.warning("the %s is left to cleanup: %s", place, standing)

    if forks:
        with ThreadPoolExecutor(_PARALLEL_RECLAIMS) as pool:
            list(pool.map(one, forks))


# --- common to both ------------------------------------------------------------------------------


def _refuse_read_only(graph: OpenGraph) -> None:
    if graph.read_only:
        raise BadRequest(f"'{graph.root.uri}' is open read-only", remedy="open it for writing")


def _locked(root: Root, operation: str, branches: list[str], creating: Sequence[str] = ()) -> Held:
    try:
        return root.locks.hold(branches, creating=creating)
    except WriterBusy as busy:
        if schema_lock.find_lock(root) is None:
            raise
        raise _blocked(operation) from busy


def _live(graph: OpenGraph, operation: str, held: Held) -> Survey:
    """The references of all branches but main; refused while a schema apply runs."""
    live = _references(graph.root)
    if SCHEMA_APPLY_LOCK not in live.names:
        return live
    if MAIN in held.branches:
        schema_lock.clear_stale(graph, held)
    elif not schema_lock.clear_if_free(graph):
        raise _blocked(operation)
    return _references(graph.root)


def _take_back_during_schema_apply(root: Root, made: str) -> None:
    """A lease can be lost: a schema apply may have looked for branches just before this one was made."""
    if schema_lock.find_lock(root) is not None:
        remove_fork(root, root.layout.manifest, made)
        raise _blocked("branch create")


def _blocked(operation: str) -> SchemaApplyBlocked:
    return SchemaApplyBlocked(
        f"{operation} is unavailable while schema apply is in progress",
        remedy="try again when it is done",
    )
