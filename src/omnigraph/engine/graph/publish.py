"""Publishing: the one compare-and-swap that makes a change visible.

A publish adds the new table versions and the commit that explains them in a single write of the
manifest, and rewrites the branch's head row with it. Two publishes of one branch therefore always
collide; the loser reads the new state, checks its expectations again and re-parents. The chain of
commits stays linear whatever the number of writers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.coordinator import Coordinator, LoadedBranch, read_changed_records
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import KEY, ManifestState, Records, TableVersion, encode, head_key
from omnigraph.engine.graph.migrations import migrate_branch
from omnigraph.errors import (
    Conflict,
    Decided,
    PublishContention,
    ReadSetChanged,
    StorageFailure,
    TableVersionConflict,
)
from omnigraph.storage.cas import (
    StagedSwap,
    SwapResult,
    commit_row,
    find_row,
    merge_rows,
    replace_row,
    stage_row,
)
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.references import Incarnation

RETRY_BUDGET = 5


@dataclass(frozen=True, slots=True)
class ManifestChanges:
    """The table registrations, versions and drops that a publish writes."""

    registered: Mapping[str, str] = field(default_factory=dict)
    """New tables and their paths."""
    versions: tuple[TableVersion, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewCommit:
    """The commit that a publish creates; its id is fixed before the first attempt."""

    commit_id: str
    actor: str | None = None
    merged_parent: str | None = None
    merged_commits: tuple[Commit, ...] = ()
    """The commits of other branches that a merge takes in, `merged_parent` and its ancestors."""
    rival: str | None = None
    """The id of the other outcome of the same operation: once that is visible, this one must not be."""
    message: str | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class ExactHead:
    """A precondition: this head of this incarnation of the branch."""

    identity: Incarnation
    head: str | None


@dataclass(frozen=True, slots=True)
class Publication:
    """A publish that took effect."""

    commit: Commit
    loaded: LoadedBranch
    already_published: bool = False
    """True when an earlier attempt succeeded and only its acknowledgement was lost."""


def publish(
    coordinator: Coordinator,
    changes: ManifestChanges,
    lineage: NewCommit,
    *,
    expected: Mapping[str, int] | None = None,
    precondition: ExactHead | None = None,
    base: LoadedBranch | None = None,
    staged: StagedPublication | None = None,
) -> Publication:
    """Make changes visible on a branch, or raise a typed conflict; callers hold the branch lock.

    `base` is the branch as the caller just read it under that lock, which saves the first load. If the branch
    moved all the same, the swap is refused and the next attempt loads it. `staged` is what the first attempt
    is to write, on that base.
    """
    if staged is not None:
        published = _land(coordinator, staged)
        if published is not None:
            return published
        base = None
    for attempt in range(RETRY_BUDGET + 1):
        loaded = _load(coordinator, base if attempt == 0 else None)
        if loaded is None:
            continue
        done = _find_published(loaded, lineage)
        if done is not None:
            return done
        _check(loaded, coordinator.branch, changes, expected or {}, precondition)
        commit = _commit(coordinator, loaded.state, lineage)
        published = _attempt(coordinator, loaded, _records(changes, loaded.state, commit, lineage), commit)
        if published is not None:
            return published
    raise PublishContention(coordinator.branch, RETRY_BUDGET + 1)


@dataclass(frozen=True, slots=True)
class StagedPublication:
    """A publish whose files are written and which no reader sees."""

    loaded: LoadedBranch
    commit: Commit
    records: Records
    swap: StagedSwap


def stage_publication(
    coordinator: Coordinator,
    changes: ManifestChanges,
    lineage: NewCommit,
    *,
    expected: Mapping[str, int],
    precondition: ExactHead,
    base: LoadedBranch,
) -> StagedPublication | None:
    """Write the files of a publish ahead of it; None where it has to be done as a whole.

    The changes need not have taken place yet.
    """
    if not coordinator.has_current_format(base) or _find_published(base, lineage) is not None:
        return None
    _check(base, coordinator.branch, changes, expected, precondition)
    commit = _commit(coordinator, base.state, lineage)
    records = _records(changes, base.state, commit, lineage)
    address = _find_head(coordinator, base, records)
    if address is None:
        return None
    rows = encode(records, _following(base, records).locations)
    return StagedPublication(base, commit, records, stage_row(base.table, rows, KEY, address))


def _land(coordinator: Coordinator, staged: StagedPublication) -> Publication | None:
    try:
        failpoints.reach(failpoints.PUBLISH_LOAD_STATE_RETRYABLE_CONTENTION)
    except StorageFailure as failure:
        if failure.kind != TableFailureKind.CONTENTION:
            raise
        return None
    return _attempt(coordinator, staged.loaded, staged.records, staged.commit, staged.swap)


def repin(
    coordinator: Coordinator, versions: Sequence[TableVersion], *, expected: Mapping[str, int]
) -> LoadedBranch:
    """Publish versions with the same rows as the expected ones, stored differently; callers hold the lock.

    It creates no commit: the head stays, and the same head means the same content. The head row is rewritten
    all the same, so that a repin collides with every publish of the branch.
    """
    for _ in range(RETRY_BUDGET + 1):
        loaded = _load(coordinator)
        if loaded is None:
            continue
        if _has_versions(loaded.state, versions):
            return loaded
        _check(loaded, coordinator.branch, ManifestChanges(versions=tuple(versions)), expected, None)
        _check_same_rows(loaded.state, versions)
        done = _attempt_repin(coordinator, loaded, versions)
        if done is not None:
            return done
    raise PublishContention(coordinator.branch, RETRY_BUDGET + 1)


def _has_versions(state: ManifestState, versions: Sequence[TableVersion]) -> bool:
    return all(state.versions.get(one.key) == one for one in versions)


def _check_same_rows(state: ManifestState, versions: Sequence[TableVersion]) -> None:
    for one in versions:
        known = state.versions[one.key]
        if (known.owner, known.row_count) != (one.owner, one.row_count):
            raise Conflict(f"version {one.version} of table '{one.key}' does not hold the published rows")


def _attempt_repin(
    coordinator: Coordinator, loaded: LoadedBranch, versions: Sequence[TableVersion]
) -> LoadedBranch | None:
    """Try once; None when another publish won."""
    state = loaded.state
    heads = {coordinator.branch: state.head.id} if state.head else {}
    records = Records(versions=versions, heads=heads)
    known = {state.head.id: state.head} if state.head else {}
    try:
        swapped = _write(coordinator, loaded, records, encode(records, state.locations, known))
    except StorageFailure as failure:
        if failure.kind == TableFailureKind.CONTENTION:
            return None
        current = coordinator.load()
        if not _has_versions(current.state, versions):
            raise
        return current
    table = swapped.table.make_durable(loaded.table, swapped.made_by)
    more = records if table.version == state.version + 1 else read_changed_records(table, state.version)
    published = LoadedBranch(table, state.plus(more, table.version), loaded.identity, swapped.last_address)
    coordinator.adopt(published)
    return published


def _load(coordinator: Coordinator, base: LoadedBranch | None = None) -> LoadedBranch | None:
    """Return `base`, or the branch as it is now; None when migrating it lost a race."""
    try:
        failpoints.reach(failpoints.PUBLISH_LOAD_STATE_RETRYABLE_CONTENTION)
        loaded = base or coordinator.load()
        if coordinator.has_current_format(loaded):
            return loaded
        migrate_branch(coordinator.root, coordinator.branch, loaded.table)
        return coordinator.load()
    except StorageFailure as failure:
        if failure.kind == TableFailureKind.CONTENTION:
            return None
        raise


def _find_published(loaded: LoadedBranch, lineage: NewCommit) -> Publication | None:
    commits = loaded.state.commits
    if lineage.commit_id in commits:
        return Publication(commits[lineage.commit_id], loaded, already_published=True)
    if lineage.rival is not None and lineage.rival in commits:
        raise Decided(lineage.commit_id, lineage.rival)
    return None


# --- checks --------------------------------------------------------------------------------------


def _check(
    loaded: LoadedBranch,
    branch: str,
    changes: ManifestChanges,
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
    _check_owners(state, branch, changes)
    _check_changes(state, changes)


def _check_owners(state: ManifestState, branch: str, changes: ManifestChanges) -> None:
    """Refuse tables of branches that this one does not descend from: branch delete relies on that."""
    for one in changes.versions:
        known = state.versions.get(one.key)
        if one.owner not in (None, branch) and (known is None or known.owner != one.owner):
            raise Conflict(f"table '{one.key}' belongs to branch '{one.owner}', not to '{branch}'")


def _check_head(loaded: LoadedBranch, branch: str, precondition: ExactHead) -> None:
    if loaded.identity != precondition.identity:
        raise ReadSetChanged(
            f"branch:{branch}", expected=str(precondition.identity), actual=str(loaded.identity)
        )
    actual = loaded.state.head.id if loaded.state.head else None
    if actual != precondition.head:
        raise ReadSetChanged(f"graph_head:{branch}", expected=precondition.head, actual=actual)


def _check_changes(state: ManifestState, changes: ManifestChanges) -> None:
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


def _records(changes: ManifestChanges, state: ManifestState, commit: Commit, lineage: NewCommit) -> Records:
    versions = [one for one in changes.versions if not _is_published(one, state)]
    return Records(
        locations=changes.registered,
        versions=versions,
        tombstones=changes.dropped,
        commits=[commit],
        heads={commit.branch: commit.id},
        merged=[
            one
            for one in lineage.merged_commits
            if one.id not in state.merged and one.id not in state.commits
        ],
    )


def _is_published(one: TableVersion, state: ManifestState) -> bool:
    """Whether the manifest has this row already; the same version under another owner is a handoff."""
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


def _commit(coordinator: Coordinator, state: ManifestState, lineage: NewCommit) -> Commit:
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
        message=lineage.message,
        operation=lineage.operation,
    )


def _following(loaded: LoadedBranch, records: Records) -> ManifestState:
    following = loaded.state.plus(records, loaded.state.version + 1)
    following.entries()  # a state that does not add up must never be written
    return following


def _attempt(
    coordinator: Coordinator,
    loaded: LoadedBranch,
    records: Records,
    commit: Commit,
    staged: StagedSwap | None = None,
) -> Publication | None:
    """Try once; None when another publish won."""
    following = _following(loaded, records)
    failpoints.reach(failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND)
    try:
        if staged is not None:
            swapped = commit_row(staged)
        else:
            swapped = _write(coordinator, loaded, records, encode(records, following.locations))
    except StorageFailure as failure:
        if failure.kind == TableFailureKind.CONTENTION:
            return None
        return _after_failure(coordinator, commit, failure)
    failpoints.reach(failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT)
    # Not above: the write took effect, whether or not the disk can be trusted.
    table = swapped.table.make_durable(loaded.table, swapped.made_by)
    if table.version != following.version:
        # Lance rebased the write over a commit of other rows, which is not known here.
        following = loaded.state.plus(read_changed_records(table, loaded.state.version), table.version)
    published = LoadedBranch(table, following, loaded.identity, swapped.last_address)
    coordinator.adopt(published)
    return Publication(following.commits[commit.id], published)


def _write(coordinator: Coordinator, loaded: LoadedBranch, records: Records, rows: pa.Table) -> SwapResult:
    """Write manifest rows, with the branch's head last, on exactly the state they were built for.

    Usually the head row is replaced and all others are new: then no row is looked up. The first commit of a
    branch has no head row to replace, and a version that passes to another owner has a row already.
    """
    table, address = loaded.table, _find_head(coordinator, loaded, records)
    if address is None:
        return merge_rows(table, rows, KEY)
    return replace_row(table, rows, KEY, address)


def _find_head(coordinator: Coordinator, loaded: LoadedBranch, records: Records) -> int | None:
    """Return the address of the head row, if a publish of these records replaces it and no other row."""
    branch = coordinator.branch
    if list(records.heads) != [branch] or branch not in loaded.state.heads:
        return None
    if not _are_new(records, loaded.state):
        return None
    if loaded.head_address is not None:
        return loaded.head_address
    return find_row(loaded.table, KEY, head_key(branch))


def _are_new(records: Records, state: ManifestState) -> bool:
    """Whether no row but the head is stored already."""
    versions = ((state.versions.get(one.key), one) for one in records.versions)
    return not records.locations.keys() & state.locations.keys() and all(
        known is None or known.version < one.version for known, one in versions
    )


def _after_failure(coordinator: Coordinator, commit: Commit, failure: StorageFailure) -> Publication | None:
    """Read from the manifest whether a write took effect whose answer was lost.

    None when it has to be tried again, because its base was collected meanwhile.
    """
    try:
        loaded = coordinator.load()
    except StorageFailure as second:
        raise failure from second
    found = loaded.state.commits.get(commit.id)
    if found is None:
        if failure.kind == TableFailureKind.RECLAIMED:
            return None
        raise failure
    return Publication(found, loaded, already_published=True)
