"""Every error omnigraph raises, in one tree.

    OmnigraphError
    ├── CompileError                  text of a schema or query is wrong; carries positions
    │   ├── ParseError
    │   ├── CatalogError
    │   └── TypeCheckError
    ├── SchemaIdentityError           a migration hint names something that is not there
    ├── BadRequest                    the request cannot be carried out as asked
    │   ├── ParameterError, InvalidValue, InvalidName, ConstraintViolation, LoadRejected
    │   ├── UnsupportedSchemaChange, WrongQueryKind, QueryError
    │   └── GraphClosed, ReadOnlyGraph, ChangeCursorRejected
    ├── Unauthorized, PolicyDenied, TooManyRequests
    ├── NotFound
    │   ├── GraphNotFound, BranchNotFound, CommitNotFound, VersionNotFound
    │   └── QueryNotFound, EntityNotFound
    ├── Conflict                      someone else changed what this operation relied on
    │   ├── AlreadyInitialized, InitializationClaimed
    │   ├── BranchExists, BranchInUse, SchemaApplyBlocked, SchemaContractBroken
    │   ├── TableVersionConflict, ReadSetChanged, PublishContention, Decided
    │   └── KeyConflict, MergeConflicts, ChangeDiffRefused
    ├── ChangeFeedGap
    ├── HistoricalVersionReclaimed    the snapshot is known, its data was cleaned up
    ├── PreconditionFailed, ResourceLimitExceeded, UnsatisfiableRange, ExternalBlobUnavailable
    ├── Unavailable                   try again, or heal first
    │   ├── RecoveryRequired
    │   └── WriterBusy, LockLost
    └── InternalError                 the store or an invariant failed
        ├── StorageFailure
        ├── UnsupportedFormat, CorruptGraph
        └── InitializationCommitted, InitializationIndeterminate

Each class has a stable `code`, the HTTP `status` a server answers with and whether a plain retry
can help (`retryable`). Each instance has a one-sentence `message` in the user's own names, a
`remedy` when there is something to do, and its data as attributes, collected by `data()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from omnigraph.diagnostics import MAX_DIAGNOSTICS, Diagnostic


class OmnigraphError(Exception):
    """Base of every error this package raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses have constructors of their own shape; a task on another process must still be
        # able to send one back, so rebuild from the attributes instead of the constructor.
        return _rebuild, (type(self), self.message, dict(self.__dict__))

    def data(self) -> dict[str, Any]:
        """The facts of this error by name, as plain values, without `message` and `remedy`."""
        return {key: _plain(value) for key, value in vars(self).items() if key not in ("message", "remedy")}

    def to_json(self) -> dict[str, Any]:
        """The error as a script or a server prints it."""
        body: dict[str, Any] = {"error": self.message, "code": self.code, "retryable": self.retryable}
        if self.remedy:
            body["remedy"] = self.remedy
        facts = self.data()
        return {**body, "data": facts} if facts else body


def _rebuild(kind: type[OmnigraphError], message: str, attributes: dict[str, Any]) -> OmnigraphError:
    error = kind.__new__(kind, message)
    error.__dict__.update(attributes)
    return error


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


# --- text that does not compile ------------------------------------------------------------------


class CompileError(OmnigraphError):
    """A schema or query text is wrong; `diagnostics` has every place, in order."""

    code = "compile_error"
    status = 400
    prefix: ClassVar[str] = "compile error"

    def __init__(self, diagnostics: Sequence[Diagnostic], *, truncated: bool = False) -> None:
        first = diagnostics[0]
        super().__init__(f"{self.prefix}: {first.message}", remedy=first.help)
        self.diagnostics = tuple(diagnostics)
        self.truncated = truncated
        """True when there were more findings than `MAX_DIAGNOSTICS`."""

    def __str__(self) -> str:
        return f"{self.message}\n{self.render()}"

    def render(self) -> str:
        """All diagnostics with their underlined source lines."""
        parts = [diagnostic.render() for diagnostic in self.diagnostics]
        if self.truncated:
            parts.append(f"stopped after {MAX_DIAGNOSTICS} errors")
        return "\n\n".join(parts)


class ParseError(CompileError):
    """The text does not follow the grammar, or breaks a rule about one declaration."""

    code = "parse_error"
    prefix = "parse error"


class CatalogError(CompileError):
    """Declarations that are fine alone do not fit together."""

    code = "catalog_error"
    prefix = "catalog error"


class TypeCheckError(CompileError):
    """A query does not fit the schema."""

    code = "type_error"
    prefix = "type error"


class SchemaIdentityError(OmnigraphError):
    """A desired schema cannot be matched to the accepted one."""

    code = "schema_identity"
    status = 400

    def __init__(self, reason: str, *, entity: str, remedy: str | None = None) -> None:
        super().__init__(f"schema identity resolution failed: {reason}", remedy=remedy)
        self.entity = entity


# --- requests that cannot be carried out ---------------------------------------------------------


class BadRequest(OmnigraphError):
    """The request cannot be carried out as asked."""

    code = "bad_request"
    status = 400


class ParameterError(BadRequest):
    """A query parameter is missing or has the wrong kind of value."""

    code = "bad_parameter"

    def __init__(self, name: str, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.name = name


class InvalidValue(BadRequest):
    """A value does not fit the type it is meant for."""

    code = "invalid_value"


class InvalidName(BadRequest):
    """A branch, type or other name breaks the naming rules."""

    code = "invalid_name"

    def __init__(self, name: str, reason: str, *, remedy: str | None = None) -> None:
        super().__init__(reason, remedy=remedy)
        self.name = name


class ConstraintViolation(BadRequest):
    """Rows break a constraint of the schema."""

    code = "constraint_violation"

    def __init__(
        self,
        message: str,
        *,
        constraint: str,
        type_name: str,
        entity_id: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.constraint = constraint
        self.type_name = type_name
        self.entity_id = entity_id


class LoadRejected(BadRequest):
    """A load has bad rows; `violations` names each with its place and reason."""

    code = "load_rejected"

    def __init__(self, violations: Sequence[Any], *, total: int, remedy: str | None = None) -> None:
        super().__init__(str(violations[0]), remedy=remedy)
        self.violations = tuple(violations)
        self.total = total


class UnsupportedSchemaChange(BadRequest):
    """A migration plan holds a step that cannot be applied to existing data."""

    code = "unsupported_schema_change"

    def __init__(self, reason: str, *, entity: str, change_code: str | None = None) -> None:
        super().__init__(f"[{change_code}] {reason}" if change_code else reason)
        self.entity = entity
        self.change_code = change_code


class WrongQueryKind(BadRequest):
    """A mutation was sent to a read entry point, or a read to a mutation one."""

    code = "wrong_query_kind"

    def __init__(self, message: str, *, query: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.query = query


class GraphClosed(BadRequest):
    """A graph was used after it was closed."""

    code = "graph_closed"

    def __init__(self, uri: str) -> None:
        super().__init__(f"graph '{uri}' is closed", remedy="open it again")
        self.uri = uri


class ReadOnlyGraph(BadRequest):
    """A change was asked of a graph that was opened for reading only."""

    code = "read_only_graph"

    def __init__(self, uri: str) -> None:
        super().__init__(f"graph '{uri}' is open for reading only", remedy="open it without `read_only`")
        self.uri = uri


class QueryError(BadRequest):
    """A query compiled but cannot be run with these values or this data."""

    code = "query_error"

    def __init__(self, reason: str, *, remedy: str | None = None) -> None:
        super().__init__(f"query: {reason}", remedy=remedy)
        self.reason = reason


class ChangeCursorRejected(BadRequest):
    """A change cursor is malformed or belongs to another graph, branch or filter."""

    code = "change_cursor_rejected"

    def __init__(self, reason: str) -> None:
        super().__init__(f"change cursor rejected: {reason}", remedy="start again from a baseline")
        self.reason = reason


# --- who may ask, and how often ------------------------------------------------------------------


class Unauthorized(OmnigraphError):
    """The caller did not prove who it is."""

    code = "unauthorized"
    status = 401


class PolicyDenied(OmnigraphError):
    """The policy does not let this actor do this here."""

    code = "forbidden"
    status = 403

    def __init__(self, message: str, *, actor: str | None = None, action: str | None = None) -> None:
        super().__init__(message, remedy="ask an administrator for a rule that allows it")
        self.actor = actor
        self.action = action


class TooManyRequests(OmnigraphError):
    """The actor has too much work under way."""

    code = "too_many_requests"
    status = 429
    retryable = True

    def __init__(self, message: str, *, actor: str | None = None) -> None:
        super().__init__(message, remedy="wait for running requests to finish, then try again")
        self.actor = actor


# --- things that are not there -------------------------------------------------------------------


class NotFound(OmnigraphError):
    """Something named in the request does not exist."""

    code = "not_found"
    status = 404


class GraphNotFound(NotFound):
    """There is no graph at this place."""

    code = "graph_not_found"

    def __init__(self, uri: str, *, reason: str | None = None) -> None:
        detail = f": {reason}" if reason else ""
        super().__init__(f"graph '{uri}' not found{detail}", remedy="check the path, or run `omnigraph init`")
        self.uri = uri


class BranchNotFound(NotFound):
    """The graph has no branch of this name."""

    code = "branch_not_found"

    def __init__(self, branch: str) -> None:
        super().__init__(
            f"branch '{branch}' not found", remedy="list the branches with `omnigraph branch list`"
        )
        self.branch = branch


class CommitNotFound(NotFound):
    """The graph has no such commit."""

    code = "commit_not_found"

    def __init__(self, commit_id: str) -> None:
        super().__init__(
            f"commit '{commit_id}' not found", remedy="list commits with `omnigraph commit list`"
        )
        self.commit_id = commit_id


class VersionNotFound(NotFound):
    """A branch has no such version, or it was cleaned up."""

    code = "version_not_found"

    def __init__(self, branch: str, version: int | str) -> None:
        super().__init__(
            f"version {version} of branch '{branch}' not found",
            remedy="list commits and their versions with `omnigraph commit list`",
        )
        self.branch = branch
        self.version = version


class QueryNotFound(NotFound):
    """A query file has no query of this name, or the name is needed and missing."""

    code = "query_not_found"

    def __init__(self, message: str, *, names: Sequence[str] = ()) -> None:
        super().__init__(message, remedy=f"choose one of: {', '.join(names)}" if names else None)
        self.names = tuple(names)


class EntityNotFound(NotFound):
    """There is no node or edge with this id."""

    code = "entity_not_found"

    def __init__(self, type_name: str, entity_id: str) -> None:
        super().__init__(f"{type_name} '{entity_id}' not found")
        self.type_name = type_name
        self.entity_id = entity_id


# --- somebody else was faster --------------------------------------------------------------------


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


class MergeConflicts(Conflict):
    """Two branches changed the same things in different ways."""

    code = "merge_conflicts"

    def __init__(self, source: str, target: str, conflicts: Sequence[Any]) -> None:
        preview = "; ".join(str(conflict) for conflict in conflicts[:3])
        rest = f"; and {len(conflicts) - 3} more" if len(conflicts) > 3 else ""
        super().__init__(
            f"merging '{source}' into '{target}' has {len(conflicts)} conflicts: {preview}{rest}",
            remedy="change one of the branches so that they agree, then merge again",
        )
        self.source = source
        self.target = target
        self.conflicts = tuple(conflicts)


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


# --- the store or an invariant failed ------------------------------------------------------------


class InternalError(OmnigraphError):
    """Something failed that the request is not to blame for."""


class StorageFailure(InternalError):
    """The object store or file system failed; `kind` classes the failure."""

    code = "storage_failure"

    def __init__(self, message: str, *, kind: str, uri: str | None = None, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.kind = kind
        self.uri = uri


class UnsupportedFormat(InternalError):
    """The graph was written by a version this one cannot read or write."""

    code = "unsupported_format"

    def __init__(self, message: str, *, found: int, supported: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.found = found
        self.supported = supported


class CorruptGraph(InternalError):
    """A stored record of the graph cannot be understood."""

    code = "corrupt_graph"

    def __init__(self, message: str, *, object_id: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.object_id = object_id


class InitializationCommitted(InternalError):
    """The graph was created, but a step after that failed."""

    code = "initialization_committed"

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(
            f"'{uri}' was initialised, but then: {reason}", remedy="open the graph; it is complete"
        )
        self.uri = uri
        self.reason = reason


class InitializationIndeterminate(InternalError):
    """It cannot be told whether the graph was created."""

    code = "initialization_indeterminate"

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(
            f"cannot tell whether '{uri}' was initialised: {reason}",
            remedy="make the store reachable and try to open the graph",
        )
        self.uri = uri
        self.reason = reason
