"""Forks of tables: a branch gets its own copy of a table with its first write to it, and never before.

A fork is named after its branch. An interrupted write or delete can leave one behind that no manifest
places anywhere; it is recognised by asking the manifest, and removed by whoever meets it and holds the
branch's lock: a writer that needs the name, a branch delete, or cleanup. Other such forks may stand on it:
they go first, each by what the manifest says of its own branch.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from omnigraph import failpoints
from omnigraph.engine.coordinator import Coordinator
from omnigraph.engine.manifest import MAIN, Entry, State
from omnigraph.engine.root import Root
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
from omnigraph.storage.fork_files import home, with_those_above
from omnigraph.storage.forks import innermost_first
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.locks import Held
from omnigraph.storage.tables import Table, Tables

_ONE_AT_A_TIME = threading.Lock()
"""Threads that reclaim at several tables at once would find the lock of a branch taken by each other."""


class Standing(StrEnum):
    """What the manifest says about a fork."""

    LEGITIMATE = "Legitimate"
    """Its branch has the table there: never touched."""
    ORPHAN = "Orphan"
    """Its branch is gone, or has the table elsewhere: it may be removed."""
    INDETERMINATE = "Indeterminate"
    """The branch is there but cannot be read, or a branch is stored below the fork: left for later."""


@dataclass(frozen=True, slots=True)
class ForkPlace:
    """Where the fork of a table for a branch is, or would be."""

    key: str
    table: Location
    branch: str

    def __str__(self) -> str:
        return f"fork of '{self.key}' for branch '{self.branch}'"


# --- whose is it? --------------------------------------------------------------------------------


def classify(root: Root, place: ForkPlace) -> Standing:
    """Whose a fork is, by the branch's manifest as it is now; callers hold the branch's lock."""
    failpoints.reach(failpoints.FORK_BEFORE_CLASSIFY)
    try:
        state = _fresh_state(root, place.branch)
    except (BranchNotFound, InternalError):
        return Standing.ORPHAN if _is_proven_absent(root, place.branch) else Standing.INDETERMINATE
    pinned = state.versions.get(place.key)
    owned = pinned is not None and pinned.owner == place.branch
    return Standing.LEGITIMATE if owned else Standing.ORPHAN


def _fresh_state(root: Root, branch: str) -> State:
    failpoints.reach(failpoints.CLASSIFY_FRESH_READ)
    return Coordinator(root, branch).load().state


def _is_proven_absent(root: Root, branch: str) -> bool:
    """Whether the store itself says that there is no such branch; no answer proves nothing."""
    try:
        return branch != MAIN and root.forks.find(root.layout.manifest, branch) is None
    except StorageFailure:
        return False


# --- removing ------------------------------------------------------------------------------------


def reclaim(
    root: Root,
    held: Held,
    place: ForkPlace,
    *,
    live: Collection[str] = (),
    operation_id: str | None = None,
) -> Standing:
    """Remove a fork, or the files of half a one, if it is an orphan; callers hold the branch's lock.

    An orphan is gone afterwards, and with it what stood on it; any other standing means that nothing was
    done. `live` are the branches of the graph, as listed under the lock: those below the fork's name are
    stored inside its folder. A write on record that names the fork stops this with `RecoveryRequired`, unless
    it is `operation_id`; what stands on the fork and is needed, with `Conflict` or `Unavailable`.
    """
    standing = _judged(root, place, live, operation_id)
    if standing is Standing.ORPHAN:
        failpoints.reach(failpoints.FORK_BEFORE_RECLAIM)
        remove_orphan(root, held, place)
    return standing


def _judged(root: Root, place: ForkPlace, live: Collection[str], operation_id: str | None = None) -> Standing:
    standing = classify(root, place)
    if standing is not Standing.ORPHAN:
        return standing
    if any(name.startswith(f"{place.branch}/") for name in live):
        return Standing.INDETERMINATE
    _refuse_claimed(root, place, operation_id)
    return standing


def remove_orphan(root: Root, held: Held, place: ForkPlace) -> None:
    """Remove a fork that is known to be an orphan, and before it the orphans that stand on it."""
    held.require()
    try:
        remove_fork(root, place.table, place.branch)
    except BranchInUse as error:
        staying = _reclaim_others(root, held, place, error.dependants)
        if staying:
            raise _still_needed(place, staying) from error
        held.require()
        remove_fork(root, place.table, place.branch)


def remove_fork(root: Root, table: Location, name: str) -> None:
    """Remove a fork and exactly its own files; files without a fork and nothing at all are fine too."""
    try:
        root.forks.delete(table, name)
    except StorageFailure as failure:
        if failure.kind == Trouble.IN_USE:
            raise BranchInUse(name, root.forks.built_on(table, name)) from failure
        if failure.kind != Trouble.NOT_FOUND:
            raise
        root.forks.remove_residue(table, name)


@dataclass(frozen=True, slots=True)
class _Staying:
    """A fork of another branch that is in the way, and why it cannot go."""

    branch: str
    why: str
    for_good: bool = False
    """Whether its branch shows it: then nothing changes until that is deleted."""


def _reclaim_others(root: Root, held: Held, place: ForkPlace, names: Collection[str]) -> list[_Staying]:
    """Remove forks of other branches at the same table as far as these are orphans; those that stay."""
    with _ONE_AT_A_TIME:
        found = [name for name in innermost_first(root.forks.survey(place.table)) if name in names]
        others = (ForkPlace(place.key, place.table, name) for name in found)
        staying = (_reclaim_other(root, held, other) for other in others)
        return [one for one in staying if one is not None]


def _reclaim_other(root: Root, held: Held, other: ForkPlace) -> _Staying | None:
    """Remove one of them."""
    own = _locked_too(root, held, other.branch)
    if own is None:
        return _Staying(other.branch, "which is being written at this moment")
    with own:
        held.require()
        try:
            standing = _judged(root, other, root.forks.names(root.layout.manifest))
            if standing is Standing.ORPHAN:
                own.require()
                remove_fork(root, other.table, other.branch)
                return None
        except BranchInUse:
            return _Staying(other.branch, "on which others stand in turn")
        except OmnigraphError as error:
            return _Staying(other.branch, f"which cannot go yet: {_reason(error)}")
    if standing is Standing.LEGITIMATE:
        return _Staying(other.branch, "which has it in use", for_good=True)
    return _Staying(other.branch, "of which cannot be told whether it is needed")


def _locked_too(root: Root, held: Held, branch: str) -> Held | None:
    """The locks of another branch; None when somebody has one of them.

    Those who wait take locks in the order of their names, so only where that is kept this waits as well: the
    lease of a dead process looks taken for a while.
    """
    wanted = [name for name in with_those_above(branch) if name not in held.branches]
    in_order = all(name > max(held.branches) for name in wanted)
    try:
        return root.locks.hold(wanted, wait=None if in_order else 0.0)
    except WriterBusy:
        return None


def _reason(error: OmnigraphError) -> str:
    return error.reason if isinstance(error, RecoveryRequired) else error.message


def _still_needed(place: ForkPlace, staying: Collection[_Staying]) -> OmnigraphError:
    """What to tell of an earlier branch's data that others keep: only some of them go by themselves."""
    said = f"'{place.key}' has data of an earlier branch '{place.branch}'"
    keeping = [f"'{one.branch}'" for one in staying if one.for_good]
    if keeping:
        names = ", ".join(keeping)
        return Conflict(
            f"{said}, and {names} still uses it",
            remedy=f"write to a branch of another name, or delete {names} first",
        )
    reasons = "; ".join(f"'{one.branch}', {one.why}" for one in staying)
    return Unavailable(f"{said}, beside that of {reasons}", remedy="try again, or run `omnigraph cleanup`")


def _refuse_claimed(root: Root, place: ForkPlace, operation_id: str | None) -> None:
    """A write that was interrupted may still need the fork: its recovery decides, nobody else."""
    for at in sorted(root.objects.list_dir(root.layout.recovery), key=lambda at: at.name):
        operation, dot, ending = at.name.rpartition(".")
        if not dot or ending != "json" or operation == operation_id:
            continue
        record = root.objects.read_text_if_exists(at)
        if record is not None and _may_name(record, place):
            raise RecoveryRequired(operation, f"it may still need the {place}")


def _may_name(record: str, place: ForkPlace) -> bool:
    """Whether a record of a write names a fork; one that cannot be read may name any."""
    try:
        pins: list[Any] = json.loads(record)["tables"]
        return any(pin["table_key"] == place.key and pin.get("table_branch") == place.branch for pin in pins)
    except (ValueError, KeyError, TypeError, AttributeError):
        return True


# --- first touch ---------------------------------------------------------------------------------


def fork_table(
    root: Root, held: Held, entry: Entry, branch: str, *, operation_id: str | None = None
) -> Table:
    """The fork of a table for a branch, made now, at exactly the version its entry shows.

    A fork that is there already is never taken over: an orphan is removed, once, and any other is a
    conflict that asks the writer to prepare again. Callers hold the branch's lock.
    """
    place = ForkPlace(entry.key, root.layout.table(entry.path), branch)
    if branch in (MAIN, entry.owner):
        raise InternalError(f"the {place} is not needed: the table is there already")
    # A handle of its own: while Lance forks through one, nobody else can use it, not even to read.
    access = root.tables.access
    source = Tables(access.observe, sync=access.sync).open(place.table, entry.version, branch=entry.owner)
    made = _attempt(root, held, source, place)
    if made is None:
        staying = _make_way(root, held, place, operation_id)
        made = _attempt(root, held, source, place)
        if made is None:
            raise _still_needed(place, staying) if staying else _taken(place)
    failpoints.reach(failpoints.FORK_POST_CREATE_PRE_OPEN)
    return root.tables.grown_up(made)


def _attempt(root: Root, held: Held, source: Table, place: ForkPlace) -> Table | None:
    """Try once; None when something of that name is in the way."""
    held.require()
    try:
        return root.forks.create(source, place.branch)
    except StorageFailure as failure:
        if failure.kind in (Trouble.EXISTS, Trouble.RESIDUE, Trouble.CONFLICT):
            return None
        raise


def has_files(root: Root, table: Location, name: str) -> bool:
    """Whether anything is stored where a fork of this name is."""
    return root.objects.exists(home(table, name))


def _make_way(root: Root, held: Held, place: ForkPlace, operation_id: str | None) -> list[_Staying]:
    """Remove what an earlier branch of the name left; what stays below the name, and may be in the way."""
    staying = clear_below(root, held, place)
    standing = reclaim(root, held, place, operation_id=operation_id)
    if standing is Standing.LEGITIMATE:
        raise _taken(place)
    if standing is Standing.INDETERMINATE:
        raise Unavailable(
            f"cannot tell whether the {place} is still needed: the branch cannot be read",
            remedy="make the store reachable, then retry the write",
        )
    return staying


def clear_below(root: Root, held: Held, place: ForkPlace) -> list[_Staying]:
    """Remove the orphans below the name of a fork: with `a/_versions` there, Lance makes no `a`."""
    below = [name for name in root.forks.names(place.table) if name.startswith(f"{place.branch}/")]
    return _reclaim_others(root, held, place, below) if below else []


def _taken(place: ForkPlace) -> ReadSetChanged:
    return ReadSetChanged(str(place), expected="none", actual="made by another writer")
