"""What is not to be had: cleaned up, past a limit, held by others, or waiting for recovery."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError


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
            remedy="read the branch again and repeat the decision",
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


class ServerUnreachable(Unavailable):
    """A server did not answer; whether a write took effect is not known."""

    code = "server_unreachable"

    def __init__(self, url: str, reason: str, *, is_write: bool = False) -> None:
        super().__init__(
            f"no answer from '{url}': {reason}",
            remedy="look at the commits before repeating the write: it may have taken effect"
            if is_write
            else "check the address, and whether the server runs",
        )
        self.url = url
        self.reason = reason


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
