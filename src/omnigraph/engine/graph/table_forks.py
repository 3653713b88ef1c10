"""Forks of tables: a branch gets its own copy of a table with its first write to it, and never before.

A fork is named after its branch. An interrupted write or delete can leave an orphan fork, which no manifest
refers to. It is removed by the next process that needs the name or cleans up, and holds the branch's lock: a
writer, a branch delete, or cleanup. Other orphans may be built on it: they are removed first, each by what
the manifest of its own branch says.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from enum import StrEnum
from typing import Any

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import MAIN, ManifestState, TableEntry
from omnigraph.engine.graph.root import Root
from omnigraph.errors import (
    BranchInUse,
    BranchNotFound,
    Conflict,
    InternalError,
    OmnigraphError,
    ReadSetChanged,
    RecoveryRequired,
    StorageFailure,
    Unavailable,
    WriterBusy,
)
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.forks import fork_folder, list_with_ancestors, sort_innermost_first
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.tables import Table, Tables

_RECLAIM_LOCK = threading.Lock()
"""One thread reclaims at a time, because threads would find branch locks taken by each other."""


class ForkStatus(StrEnum):
    """What the manifest says about a fork."""

    LEGITIMATE = "Legitimate"
    """Its branch has the table there: never touched."""
    ORPHAN = "Orphan"
    """Its branch is deleted, or has the table elsewhere: it may be removed."""
    INDETERMINATE = "Indeterminate"
    """The branch exists but cannot be read, or a branch is stored below the fork: skipped for now."""


@dataclass(frozen=True, slots=True)
class ForkPlace:
    """Where the fork of a table for a branch is, or would be."""

    key: str
    table: Location
    branch: str

    def __str__(self) -> str:
        return f"fork of '{self.key}' for branch '{self.branch}'"


# --- ownership -----------------------------------------------------------------------------------


def classify_fork(root: Root, place: ForkPlace) -> ForkStatus:
    """Return the status of a fork by the branch's current manifest; callers hold the branch's lock."""
    failpoints.reach(failpoints.FORK_BEFORE_CLASSIFY)
    try:
        state = _read_state(root, place.branch)
    except (BranchNotFound, InternalError):
        return ForkStatus.ORPHAN if _is_proven_absent(root, place.branch) else ForkStatus.INDETERMINATE
    pinned = state.versions.get(place.key)
    owned = pinned is not None and pinned.owner == place.branch
    return ForkStatus.LEGITIMATE if owned else ForkStatus.ORPHAN


def _read_state(root: Root, branch: str) -> ManifestState:
    failpoints.reach(failpoints.CLASSIFY_FRESH_READ)
    return Coordinator(root, branch).load().state


def _is_proven_absent(root: Root, branch: str) -> bool:
    """Whether the store confirms that the branch does not exist; a failed read proves nothing."""
    try:
        return branch != MAIN and root.forks.find(root.layout.manifest, branch) is None
    except StorageFailure:
        return False


# --- removing ------------------------------------------------------------------------------------


def reclaim_fork(
    root: Root,
    held: HeldLocks,
    place: ForkPlace,
    *,
    live: Collection[str] = (),
    operation_id: str | None = None,
) -> ForkStatus:
    """Remove a complete or partial fork if it is an orphan; callers hold the branch's lock.

    Orphans built on it are removed too; with any other status nothing is done. `live` are the branches of
    the graph, as listed under the lock: those below the fork's name are stored inside its folder. Raises
    `RecoveryRequired` when a recorded write other than `operation_id` names the fork, and `Conflict` or
    `Unavailable` when a fork built on it is needed.
    """
    status = _judge_fork(root, place, live, operation_id)
    if status is ForkStatus.ORPHAN:
        failpoints.reach(failpoints.FORK_BEFORE_RECLAIM)
        remove_orphan_fork(root, held, place)
    return status


def _judge_fork(
    root: Root, place: ForkPlace, live: Collection[str], operation_id: str | None = None
) -> ForkStatus:
    status = classify_fork(root, place)
    if status is not ForkStatus.ORPHAN:
        return status
    if any(name.startswith(f"{place.branch}/") for name in live):
        return ForkStatus.INDETERMINATE
    _refuse_claimed(root, place, operation_id)
    return status


def remove_orphan_fork(root: Root, held: HeldLocks, place: ForkPlace) -> None:
    """Remove a fork that is known to be an orphan, after the orphans that are built on it."""
    held.require()
    try:
        remove_fork(root, held, place.table, place.branch)
    except BranchInUse as error:
        blockers = _reclaim_others(root, held, place, error.dependants)
        if blockers:
            raise _still_needed_error(place, blockers) from error
        held.require()
        remove_fork(root, held, place.table, place.branch)


def remove_fork(root: Root, held: HeldLocks, table: Location, name: str) -> None:
    """Remove a fork and only its own files; a missing or partial fork is fine."""
    try:
        root.forks.delete(table, name, held)
    except StorageFailure as failure:
        if failure.kind == TableFailureKind.IN_USE:
            raise BranchInUse(name, root.forks.built_on(table, name)) from failure
        if failure.kind != TableFailureKind.NOT_FOUND:
            raise
        root.forks.remove_residue(table, name, held)


@dataclass(frozen=True, slots=True)
class _Blocker:
    """A fork of another branch that cannot be removed, and why."""

    branch: str
    why: str
    is_permanent: bool = False
    """Whether its branch uses it: then it stays until that branch is deleted."""


def _reclaim_others(root: Root, held: HeldLocks, place: ForkPlace, names: Collection[str]) -> list[_Blocker]:
    """Remove the orphans among the forks of other branches of a table; returns the others."""
    with _RECLAIM_LOCK:
        found = [name for name in sort_innermost_first(root.forks.survey(place.table)) if name in names]
        others = (ForkPlace(place.key, place.table, name) for name in found)
        blockers = (_reclaim_other(root, held, other) for other in others)
        return [one for one in blockers if one is not None]


def _reclaim_other(root: Root, held: HeldLocks, other: ForkPlace) -> _Blocker | None:
    """Remove a fork if it is an orphan; otherwise return why it stays."""
    own = _lock_also(root, held, other.branch)
    if own is None:
        return _Blocker(other.branch, "which is being written")
    with own:
        held.require()
        try:
            status = _judge_fork(root, other, root.forks.names(root.layout.manifest))
            if status is ForkStatus.ORPHAN:
                own.require()
                remove_fork(root, own, other.table, other.branch)
                return None
        except BranchInUse:
            return _Blocker(other.branch, "which other forks are built on")
        except OmnigraphError as error:
            return _Blocker(other.branch, f"which cannot be removed yet: {_reason(error)}")
    if status is ForkStatus.LEGITIMATE:
        return _Blocker(other.branch, "which has it in use", is_permanent=True)
    return _Blocker(other.branch, "which may still be needed")


def _lock_also(root: Root, held: HeldLocks, branch: str) -> HeldLocks | None:
    """Take the locks of another branch; None when one of them is taken.

    Waiting processes take locks in the order of their names, so this waits only where it keeps that order:
    the lease of a dead process looks taken until it expires.
    """
    wanted = [name for name in list_with_ancestors(branch) if name not in held.branches]
    in_order = all(name > max(held.branches) for name in wanted)
    try:
        return root.locks.hold(wanted, wait=None if in_order else 0.0)
    except WriterBusy:
        return None


def _reason(error: OmnigraphError) -> str:
    return error.reason if isinstance(error, RecoveryRequired) else error.message


def _still_needed_error(place: ForkPlace, blockers: Collection[_Blocker]) -> OmnigraphError:
    """Return the error for data of an earlier branch that others need: for ever, or temporarily."""
    problem = f"'{place.key}' has data of an earlier branch '{place.branch}'"
    keeping = [f"'{one.branch}'" for one in blockers if one.is_permanent]
    if keeping:
        names = ", ".join(keeping)
        return Conflict(
            f"{problem}, and {names} still uses it",
            remedy=f"write to a branch of another name, or delete {names} first",
        )
    reasons = "; ".join(f"'{one.branch}', {one.why}" for one in blockers)
    return Unavailable(f"{problem}, beside that of {reasons}", remedy="try again, or run `omnigraph cleanup`")


def _refuse_claimed(root: Root, place: ForkPlace, operation_id: str | None) -> None:
    """Raise `RecoveryRequired` when an interrupted write may still need the fork."""
    for at in sorted(root.objects.list_dir(root.layout.recovery), key=lambda at: at.name):
        operation, dot, ending = at.name.rpartition(".")
        if not dot or ending != "json" or operation == operation_id:
            continue
        record = root.objects.read_text_if_exists(at)
        if record is not None and _may_name(record, place):
            raise RecoveryRequired(operation, f"it may still need the {place}")


def _may_name(record: str, place: ForkPlace) -> bool:
    """Whether the record of a write names a fork; an unreadable record may name any."""
    try:
        pins: list[Any] = json.loads(record)["tables"]
        return any(pin["table_key"] == place.key and pin.get("table_branch") == place.branch for pin in pins)
    except (ValueError, KeyError, TypeError, AttributeError):
        return True


# --- first touch ---------------------------------------------------------------------------------


def fork_table(
    root: Root, held: HeldLocks, entry: TableEntry, branch: str, *, operation_id: str | None = None
) -> Table:
    """Create the fork of a table for a branch, at exactly the version its entry shows.

    An existing fork is never reused: an orphan is removed, once, and any other is a conflict that makes the
    writer prepare again. Callers hold the branch's lock.
    """
    place = ForkPlace(entry.key, root.layout.table(entry.path), branch)
    if branch in (MAIN, entry.owner):
        raise InternalError(f"the {place} is not needed: the table is there already")
    # A separate handle: while Lance forks through one, no other thread can use it, not even to read.
    access = root.tables.access
    tables = Tables(access.observe, sync=access.sync, checksums=access.checksums)
    source = tables.open(place.table, entry.version, branch=entry.owner)
    made = _try_fork(root, held, source, place)
    if made is None:
        blockers = _clear_name(root, held, place, operation_id)
        made = _try_fork(root, held, source, place)
        if made is None:
            raise _still_needed_error(place, blockers) if blockers else _fork_exists_error(place)
    failpoints.reach(failpoints.FORK_POST_CREATE_PRE_OPEN)
    return root.tables.prepare_to_keep(made)


def _try_fork(root: Root, held: HeldLocks, source: Table, place: ForkPlace) -> Table | None:
    """Try once; None when the name is taken."""
    held.require()
    try:
        return root.forks.create(source, place.branch)
    except StorageFailure as failure:
        if failure.kind in (TableFailureKind.EXISTS, TableFailureKind.RESIDUE, TableFailureKind.CONFLICT):
            return None
        raise


def has_fork_files(root: Root, table: Location, name: str) -> bool:
    """Whether anything is stored where a fork of this name is."""
    return root.objects.exists(fork_folder(table, name))


def _clear_name(root: Root, held: HeldLocks, place: ForkPlace, operation_id: str | None) -> list[_Blocker]:
    """Remove the fork of an earlier branch of that name; returns forks below the name that stay."""
    blockers = remove_orphans_below(root, held, place)
    status = reclaim_fork(root, held, place, operation_id=operation_id)
    if status is ForkStatus.LEGITIMATE:
        raise _fork_exists_error(place)
    if status is ForkStatus.INDETERMINATE:
        raise Unavailable(
            f"the {place} may still be needed: the branch cannot be read",
            remedy="make the store reachable, then retry the write",
        )
    return blockers


def remove_orphans_below(root: Root, held: HeldLocks, place: ForkPlace) -> list[_Blocker]:
    """Remove the orphans below the name of a fork: Lance cannot create `a` beside `a/_versions`."""
    below = [name for name in root.forks.names(place.table) if name.startswith(f"{place.branch}/")]
    return _reclaim_others(root, held, place, below) if below else []


def _fork_exists_error(place: ForkPlace) -> ReadSetChanged:
    return ReadSetChanged(str(place), expected="none", actual="created by another writer")
