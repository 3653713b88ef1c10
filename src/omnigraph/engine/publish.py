"""Publishing: the one compare-and-swap that makes a change visible.

A publish adds the new table versions and the commit that explains them in a single write of the
manifest, and rewrites the branch's head row with it. Two publishes of one branch therefore always
collide; the loser reads the new state, checks its expectations again and re-parents. The chain of
commits stays linear whatever the number of writers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from omnigraph import failpoints
from omnigraph.engine.coordinator import Coordinator, Loaded, changed_since
from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import KEY, Records, State, TableVersion, encode
from omnigraph.engine.migrations import migrate_branch
from omnigraph.errors import (
    Conflict,
    Decided,
    PublishContention,
    ReadSetChanged,
    StorageFailure,
    TableVersionConflict,
)
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.references import Identity

RETRY_BUDGET = 5


@dataclass(frozen=True, slots=True)
class Changes:
    """What a publish does to tables."""

    registered: Mapping[str, str] = field(default_factory=dict)
    """New tables and their paths."""
    versions: tuple[TableVersion, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lineage:
    """The commit a publish makes; its id is fixed before the first attempt."""

    commit_id: str
    actor: str | None = None
    merged_parent: str | None = None
    rival: str | None = None
    """The id of the other outcome of the same operation: once that is visible, this one must not be."""


@dataclass(frozen=True, slots=True)
class ExactHead:
    """The publish holds only on this head of this life of the branch."""

    identity: Identity
    head: str | None


@dataclass(frozen=True, slots=True)
class Publication:
    """A publish that took effect."""

    commit: Commit
    loaded: Loaded
    already_landed: bool = False
    """True when an earlier attempt had made it, and only its acknowledgement was lost."""


def publish(
    coordinator: Coordinator,
    changes: Changes,
    lineage: Lineage,
    *,
    expected: Mapping[str, int] | None = None,
    precondition: ExactHead | None = None,
    base: Loaded | None = None,
) -> Publication:
    """Make changes visible on a branch, or raise a typed conflict; callers hold the branch lock.

    `base` is the branch as it was read under that lock, where the caller has just done so: then nobody asks
    again whether it moved. If it did all the same, the swap is refused and the next attempt finds out why.
    """
    for attempt in range(RETRY_BUDGET + 1):
        loaded = _load(coordinator, base if attempt == 0 else None)
        if loaded is None:
            continue
        done = _landed(loaded, lineage)
        if done is not None:
            return done
        _check(loaded, coordinator.branch, changes, expected or {}, precondition)
        commit = _commit(coordinator, loaded.state, lineage)
        published = _attempt(coordinator, loaded, _records(changes, loaded.state, commit), commit)
        if published is not None:
            return published
    raise PublishContention(coordinator.branch, RETRY_BUDGET + 1)


def repin(
    coordinator: Coordinator, versions: Sequence[TableVersion], *, expected: Mapping[str, int]
) -> Loaded:
    """Publish versions that hold the rows of the expected ones, stored otherwise; callers hold the lock.

    No commit tells of it, because nothing happened that a history could show: the head stays the head, and
    a head that is the same means the same content. Its row is written again all the same, so that this, too,
    collides with every publish of the branch.
    """
    for _ in range(RETRY_BUDGET + 1):
        loaded = _load(coordinator)
        if loaded is None:
            continue
        if _shows(loaded.state, versions):
            return loaded
        _check(loaded, coordinator.branch, Changes(versions=tuple(versions)), expected, None)
        _check_same_rows(loaded.state, versions)
        done = _attempt_repin(coordinator, loaded, versions)
        if done is not None:
            return done
    raise PublishContention(coordinator.branch, RETRY_BUDGET + 1)


def _shows(state: State, versions: Sequence[TableVersion]) -> bool:
    return all(state.versions.get(one.key) == one for one in versions)


def _check_same_rows(state: State, versions: Sequence[TableVersion]) -> None:
    for one in versions:
        known = state.versions[one.key]
        if (known.owner, known.row_count) != (one.owner, one.row_count):
            raise Conflict(f"version {one.version} of table '{one.key}' does not hold the published rows")


def _attempt_repin(
    coordinator: Coordinator, loaded: Loaded, versions: Sequence[TableVersion]
) -> Loaded | None:
    """Try once; None when another publish was faster."""
    state = loaded.state
    heads = {coordinator.branch: state.head.id} if state.head else {}
    records = Records(versions=versions, heads=heads)
    known = {state.head.id: state.head} if state.head else {}
    try:
        table = merge_rows(loaded.table, encode(records, state.locations, known), KEY).table
    except StorageFailure as failure:
        if failure.kind == Trouble.CONTENTION:
            return None
        landed = coordinator.load()
        if not _shows(landed.state, versions):
            raise
        return landed
    table.settled(loaded.table)
    more = records if table.version == state.version + 1 else changed_since(table, state.version)
    landed = Loaded(table, state.plus(more, table.version), loaded.identity)
    coordinator.adopt(landed)
    return landed


def _load(coordinator: Coordinator, base: Loaded | None = None) -> Loaded | None:
    """The branch as it is now, or as it is known; None when bringing it up to date lost a race."""
    try:
        failpoints.reach(failpoints.PUBLISH_LOAD_STATE_RETRYABLE_CONTENTION)
        loaded = base or coordinator.load()
        if coordinator.has_current_form(loaded):
            return loaded
        migrate_branch(coordinator.root, coordinator.branch, loaded.table)
        return coordinator.load()
    except StorageFailure as failure:
        if failure.kind == Trouble.CONTENTION:
            return None
        raise


def _landed(loaded: Loaded, lineage: Lineage) -> Publication | None:
    commits = loaded.state.commits
    if lineage.commit_id in commits:
        return Publication(commits[lineage.commit_id], loaded, already_landed=True)
    if lineage.rival is not None and lineage.rival in commits:
        raise Decided(lineage.commit_id, lineage.rival)
    return None


# --- checks --------------------------------------------------------------------------------------


def _check(
    loaded: Loaded,
    branch: str,
    changes: Changes,
    expected: Mapping[str, int],
    precondition: ExactHead | None,
) -> None:
    state = loaded.state
    if precondition is not None:
        _check_head(loaded, branch, precondition)
    for key in sorted(expected):
        actual = state.latest_version(key)
        if actual != expected[key]:
            raise TableVersionConflict(key, expected=expected[key], actual=actual)
    _check_changes(state, changes)


def _check_head(loaded: Loaded, branch: str, precondition: ExactHead) -> None:
    if loaded.identity != precondition.identity:
        raise ReadSetChanged(
            f"branch:{branch}", expected=str(precondition.identity), actual=str(loaded.identity)
        )
    actual = loaded.state.head.id if loaded.state.head else None
    if actual != precondition.head:
        raise ReadSetChanged(f"graph_head:{branch}", expected=precondition.head, actual=actual)


def _check_changes(state: State, changes: Changes) -> None:
    known = state.locations.keys() | changes.registered.keys()
    touched = [*(one.key for one in changes.versions), *changes.dropped]
    for key in touched:
        if key not in known:
            raise Conflict(f"table '{key}' is not registered in the manifest")
        if touched.count(key) > 1:
            raise Conflict(f"table '{key}' is changed twice in one publish")
    for key, path in changes.registered.items():
        if state.locations.get(key, path) != path:
            raise Conflict(f"table '{key}' is registered at '{state.locations[key]}' already")
    for one in changes.versions:
        if (dropped := state.tombstones.get(one.key, -1)) >= one.version:
            raise TableVersionConflict(one.key, expected=one.version, actual=dropped)
    for key, version in changes.dropped.items():
        if state.tombstones.get(key, -1) >= version:
            raise Conflict(f"table '{key}' is dropped already")
        if (live := state.latest_version(key)) > version:
            raise TableVersionConflict(key, expected=version, actual=live)


def _records(changes: Changes, state: State, commit: Commit) -> Records:
    versions = [one for one in changes.versions if not _is_published(one, state)]
    return Records(
        locations=changes.registered,
        versions=versions,
        tombstones=changes.dropped,
        commits=[commit],
        heads={commit.branch: commit.id},
    )


def _is_published(one: TableVersion, state: State) -> bool:
    """Whether the manifest has this very row; the same rows under another owner are a handoff."""
    known = state.versions.get(one.key)
    if known is None or known.version < one.version:
        return False
    if known == one:
        return True
    if known.version > one.version:
        raise TableVersionConflict(one.key, expected=one.version, actual=known.version)
    if known.row_count != one.row_count:
        raise Conflict(
            f"version {one.version} of table '{one.key}' is published with {known.row_count} rows, "
            f"not with {one.row_count}"
        )
    return False


# --- the write -----------------------------------------------------------------------------------


def _commit(coordinator: Coordinator, state: State, lineage: Lineage) -> Commit:
    parent = state.head
    now = coordinator.root.clock()
    return Commit(
        id=lineage.commit_id,
        branch=coordinator.branch,
        version=state.version + 1,
        created_at=max(now, parent.created_at + 1) if parent else now,
        parent=parent.id if parent else None,
        merged_parent=lineage.merged_parent,
        actor=lineage.actor,
    )


def _attempt(
    coordinator: Coordinator, loaded: Loaded, records: Records, commit: Commit
) -> Publication | None:
    """Try once; None when another publish was faster."""
    following = loaded.state.plus(records, loaded.state.version + 1)
    following.entries()  # a state that does not add up must never be written
    rows = encode(records, following.locations)
    failpoints.reach(failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND)
    try:
        table = merge_rows(loaded.table, rows, KEY).table
    except StorageFailure as failure:
        if failure.kind == Trouble.CONTENTION:
            return None
        return _after_failure(coordinator, commit, failure)
    failpoints.reach(failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT)
    table.settled(loaded.table)  # not above: it landed, whether or not the disk can be trusted
    if table.version != following.version:
        # Lance slid the write over a commit that touched other rows: what that one did is not known here.
        following = loaded.state.plus(changed_since(table, loaded.state.version), table.version)
    landed = Loaded(table, following, loaded.identity)
    coordinator.adopt(landed)
    return Publication(following.commits[commit.id], landed)


def _after_failure(coordinator: Coordinator, commit: Commit, failure: StorageFailure) -> Publication | None:
    """The write may have landed although its answer was lost: only the manifest can tell.

    None when it has to be tried again: its base was collected under it.
    """
    try:
        loaded = coordinator.load()
    except StorageFailure as second:
        raise failure from second
    found = loaded.state.commits.get(commit.id)
    if found is None:
        if failure.kind == Trouble.RECLAIMED:
            return None
        raise failure
    return Publication(found, loaded, already_landed=True)
