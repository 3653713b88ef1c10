"""What somebody else changed, cleaned up or holds, and limits that were met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors.base import OmnigraphError


class Conflict(OmnigraphError):
    """The state this operation relied on is not the state that holds."""

    code = "conflict"
    status = 409


class AlreadyInitialized(Conflict):
    """There is a graph, or a part of one, at this place already."""

    code = "already_initialized"

    def __init__(self, uri: str, *, found: str, remedy: str | None = None) -> None:
        super().__init__(
            f"'{uri}' already holds a graph (found {found})",
            remedy=remedy or "open it, or choose another place",
        )
        self.uri = uri
        self.found = found


class InitializationClaimed(Conflict):
    """Another process is creating a graph at this place right now."""

    code = "initialization_claimed"
    retryable = True

    def __init__(self, uri: str) -> None:
        super().__init__(
            f"another process is initialising '{uri}'",
            remedy="wait for it to finish; if it died, run `omnigraph init --force`",
        )
        self.uri = uri


class BranchExists(Conflict):
    """A branch of this name exists already."""

    code = "branch_exists"

    def __init__(self, branch: str) -> None:
        super().__init__(
            f"branch '{branch}' already exists", remedy="choose another name, or delete it first"
        )
        self.branch = branch


class BranchInUse(Conflict):
    """Other branches still depend on this one."""

    code = "branch_in_use"

    def __init__(self, branch: str, dependants: Sequence[str]) -> None:
        names = ", ".join(f"'{name}'" for name in dependants)
        super().__init__(
            f"branch '{branch}' cannot be deleted: {names} still depends on it",
            remedy="delete the dependent branches first",
        )
        self.branch = branch
        self.dependants = tuple(dependants)


class SchemaApplyBlocked(Conflict):
    """A schema apply and other work exclude each other."""

    code = "schema_apply_blocked"

    def __init__(self, message: str, *, branches: Sequence[str] = (), remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.branches = tuple(branches)


class SchemaContractBroken(Conflict):
    """The schema files of a graph disagree with one another."""

    code = "schema_contract_broken"


class TableDrift(Conflict):
    """Something else than omnigraph changed a table; what it wrote belongs to no commit."""

    code = "drift_needs_repair"

    def __init__(self, table_key: str, *, published: int, head: int) -> None:
        super().__init__(
            f"table '{table_key}' was changed outside of a commit: it is at version {head}, "
            f"the graph publishes version {published}",
            remedy="look at it with `omnigraph repair`, which can also publish the change as it is",
        )
        self.table_key = table_key
        self.published = published
        self.head = head


class TableVersionConflict(Conflict):
    """A table moved since this write was prepared."""

    code = "manifest_conflict"
    retryable = True

    def __init__(self, table_key: str, *, expected: int | None, actual: int | None) -> None:
        super().__init__(
            f"table '{table_key}' changed during preparation: expected version {expected}, found {actual}",
            remedy="read again and retry the write",
        )
        self.table_key = table_key
        self.expected = expected
        self.actual = actual


class ReadSetChanged(Conflict):
    """Something this write read (branch head, schema, branch life) changed before it took effect."""

    code = "read_set_conflict"
    retryable = True

    def __init__(self, member: str, *, expected: str | None, actual: str | None) -> None:
        super().__init__(
            f"write authority '{member}' changed during preparation: expected {expected}, found {actual}",
            remedy="read again and retry the write",
        )
        self.member = member
        self.expected = expected
        self.actual = actual


class PublishContention(Conflict):
    """Too many writers published at the same time; the retry budget is used up."""

    code = "publish_contention"
    retryable = True

    def __init__(self, branch: str, attempts: int) -> None:
        super().__init__(
            f"branch '{branch}' was too busy: {attempts} attempts to publish lost the race",
            remedy="retry the write",
        )
        self.branch = branch
        self.attempts = attempts


class Decided(Conflict):
    """An operation can end in one of two commits, and the other one is visible already."""

    code = "decided"

    def __init__(self, commit_id: str, rival: str) -> None:
        super().__init__(f"commit '{commit_id}' cannot be made: its operation ended with commit '{rival}'")
        self.commit_id = commit_id
        self.rival = rival


class KeyConflict(Conflict):
    """A strict insert found its id stored already."""

    code = "key_conflict"

    def __init__(
        self,
        kind: str,
        type_name: str,
        entity_id: str | None,
        *,
        violations: Sequence[Any] = (),
        total: int = 1,
        counts: Mapping[str, int] | None = None,
    ) -> None:
        what = f"id '{entity_id}'" if entity_id is not None else "this id"
        super().__init__(
            f"{kind} type '{type_name}' already has {what}", remedy="use merge to replace stored rows"
        )
        self.entity_kind = kind
        self.type_name = type_name
        self.entity_id = entity_id
        self.violations = tuple(violations)
        """In a load, the first of all records in conflict, each with its place."""
        self.total = total
        self.counts = dict(counts or {})
        """In a load, how many violations there are in all, by kind."""


class MergeConflicts(Conflict):
    """Two branches changed the same things in different ways."""

    code = "merge_conflicts"

    def __init__(self, source: str, target: str, conflicts: Sequence[Any]) -> None:
        preview = "; ".join(str(conflict) for conflict in conflicts[:3])
        rest = f"; and {len(conflicts) - 3} more" if len(conflicts) > 3 else ""
        counted = "1 conflict" if len(conflicts) == 1 else f"{len(conflicts)} conflicts"
        super().__init__(
            f"merging '{source}' into '{target}' has {counted}: {preview}{rest}",
            remedy="preview the merge with --dry-run, then decide with --strategy or --resolutions, "
            "or change one of the branches",
        )
        self.source = source
        self.target = target
        self.conflicts = tuple(conflicts)


class NoCommonCommit(Conflict):
    """Two branches share no history, so nobody can tell what either of them changed."""

    code = "no_common_commit"

    def __init__(self, source: str, target: str) -> None:
        super().__init__(f"branches '{source}' and '{target}' have no commit in common")
        self.source = source
        self.target = target


class StaleResolutions(Conflict):
    """Decisions about conflicts of a merge are about a state that is no more."""

    code = "stale_resolutions"

    def __init__(self, entities: Sequence[str], *, changed: bool) -> None:
        names = ", ".join(entities[:3]) + (f" and {len(entities) - 3} more" if len(entities) > 3 else "")
        why = "what is in conflict has changed since" if changed else "there is no such conflict"
        super().__init__(
            f"the resolutions decide on {names}, but {why}",
            remedy="preview the merge again with --write-resolutions and decide anew",
        )
        self.entities = tuple(entities)


class ChangeDiffRefused(Conflict):
    """The changes of a commit cannot be told as rows."""

    code = "change_diff_refusal"

    def __init__(self, message: str, *, reason: str, commit_id: str, type_name: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.commit_id = commit_id
        self.type_name = type_name


class ChangeFeedGap(OmnigraphError):
    """The history a cursor points at was cleaned up."""

    code = "change_feed_gap"
    status = 410

    def __init__(self, cursor: str | None, first_unreadable_commit_id: str) -> None:
        super().__init__(
            f"changes from commit '{first_unreadable_commit_id}' on are no longer readable",
            remedy="start again from a baseline",
        )
        self.cursor = cursor
        self.first_unreadable_commit_id = first_unreadable_commit_id


class HistoricalVersionReclaimed(OmnigraphError):
    """A snapshot needs a version of a table that was cleaned up."""

    code = "version_reclaimed"
    status = 410

    def __init__(self, table_key: str, version: int) -> None:
        super().__init__(
            f"version {version} of table '{table_key}' was cleaned up and can no longer be read",
            remedy="read the branch as it is now, or a newer commit",
        )
        self.table_key = table_key
        self.version = version


class PreconditionFailed(OmnigraphError):
    """A conditional write found another branch head than the one it was given."""

    code = "precondition_failure"
    status = 412

    def __init__(self, branch: str, *, expected: str, actual: str | None) -> None:
        found = f"'{actual}'" if actual is not None else "<absent>"
        super().__init__(
            f"precondition failed on branch '{branch}': expected head '{expected}' but current is {found}",
            remedy="read the branch again and decide anew",
        )
        self.branch = branch
        self.expected = expected
        self.actual = actual


class ResourceLimitExceeded(OmnigraphError):
    """An input is larger than a stated limit; nothing was written."""

    code = "resource_limit"
    status = 413

    def __init__(self, resource: str, *, limit: int, actual: int, remedy: str | None = None) -> None:
        super().__init__(
            f"resource limit exceeded for {resource}: actual {actual}, limit {limit}",
            remedy=remedy or "send less at a time, or use a bulk load",
        )
        self.resource = resource
        self.limit = limit
        self.actual = actual


class UnsatisfiableRange(OmnigraphError):
    """A byte range lies outside the blob."""

    code = "blob_range"
    status = 416

    def __init__(self, *, start: int, end: int, length: int) -> None:
        super().__init__(f"range {start}..{end} lies outside a blob of {length} bytes")
        self.start = start
        self.end = end
        self.length = length


class ExternalBlobUnavailable(OmnigraphError):
    """A blob's external source cannot be reached."""

    code = "external_blob_source"
    status = 424
    retryable = True

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(
            f"external blob source '{uri}' is unavailable: {reason}",
            remedy="make the source reachable and retry",
        )
        self.uri = uri
        self.reason = reason


# --- not now -------------------------------------------------------------------------------------


class Unavailable(OmnigraphError):
    """The operation cannot run at this moment."""

    code = "unavailable"
    status = 503
    retryable = True


class RecoveryRequired(Unavailable):
    """An interrupted write blocks this operation until it is rolled forward or back."""

    code = "recovery_required"
    retryable = False

    def __init__(self, operation_id: str, reason: str) -> None:
        super().__init__(
            f"recovery required for operation {operation_id}: {reason}",
            remedy="see `omnigraph recover --dry-run`",
        )
        self.operation_id = operation_id
        self.reason = reason


class WriterBusy(Unavailable):
    """Another process holds the lock of this branch."""

    code = "writer_busy"

    def __init__(self, branch: str, *, owner: str, waited: float, operation_id: str | None = None) -> None:
        super().__init__(
            f"branch '{branch}' is being written by {owner} (waited {waited:.1f} s)",
            remedy="retry the write",
        )
        self.branch = branch
        self.owner = owner
        self.waited = waited
        self.operation_id = operation_id


class LockLost(Unavailable):
    """A writer held the lock of a branch for too long, or it was taken away; nothing more may be written."""

    code = "lock_lost"

    def __init__(self, branch: str) -> None:
        super().__init__(
            f"the lock of branch '{branch}' was lost before the write was complete",
            remedy="retry the write",
        )
        self.branch = branch
