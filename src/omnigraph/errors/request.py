"""Requests that cannot be carried out, are not allowed, or name what is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors.base import OmnigraphError
from omnigraph.errors.violation_summary import summarize_violations


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


class WrongUsage(BadRequest):
    """A command, an option or an argument of the command line is unknown, missing or wrong."""

    code = "usage"


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

    def __init__(
        self,
        violations: Sequence[Any],
        *,
        total: int,
        counts: Mapping[str, int] | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(str(violations[0]), remedy=remedy)
        self.violations = tuple(violations)
        self.total = total
        self.counts = dict(counts or {})
        """How many there are in all, by kind."""

    def summary(self) -> str:
        """All violations in short: how many, what to do, and each reason with a count and three examples."""
        return "\n".join(summarize_violations(self.violations, self.total, self.counts, self.remedy))


class UnsupportedSchemaChange(BadRequest):
    """A migration plan holds a step that cannot be applied to existing data."""

    code = "unsupported_schema_change"

    def __init__(self, reason: str, *, entity: str, change_code: str | None = None) -> None:
        remedy = "declare it with `?`, or give it a `@default`" if change_code == "OG-MF-103" else None
        super().__init__(f"[{change_code}] {reason}" if change_code else reason, remedy=remedy)
        self.entity = entity
        self.change_code = change_code


class SchemaDataViolation(BadRequest):
    """Stored rows break what a schema change adds; `breaches` has each constraint, counted, with examples."""

    code = "schema_data_violation"

    def __init__(self, breaches: Sequence[Any]) -> None:
        first = breaches[0]
        what = "source" if first.constraint.startswith("@card") else "row"
        many = f"{first.count} {what}{'' if first.count == 1 else 's'} of {first.type_kind} {first.type_name}"
        others = len(breaches) - 1
        are = "constraint is" if others == 1 else "constraints are"
        more = f"; and {others} more {are} broken" if others else ""
        super().__init__(
            f"the stored data does not fit the schema: {many} "
            f"break{'s' if first.count == 1 else ''} {first.constraint}, {first.examples[0].reason}{more}",
            remedy="change or delete the reported rows, or relax the schema, then apply it again",
        )
        self.breaches = tuple(breaches)


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


class YamlInvalid(BadRequest):
    """A YAML text cannot be read: bad syntax, an alias, or more than its limits allow."""

    code = "yaml_invalid"
    duplicate_key: str | None = None
    """The name that a mapping has twice, where that is the mistake."""

    def __init__(
        self,
        reason: str,
        *,
        file: str,
        line: int | None = None,
        column: int | None = None,
        remedy: str | None = None,
    ) -> None:
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {reason}", remedy=remedy)
        self.file = file
        self.line = line
        self.column = column


class QueryError(BadRequest):
    """A query compiled but cannot be run with these values or this data."""

    code = "query_error"

    def __init__(self, reason: str, *, remedy: str | None = None) -> None:
        super().__init__(f"query: {reason}", remedy=remedy)
        self.reason = reason


class SqlError(BadRequest):
    """An SQL statement is wrong, reads something else than the graph, or needs too much memory."""

    code = "sql_error"


class MissingExtra(BadRequest):
    """A feature needs a package that is not installed."""

    code = "missing_extra"

    def __init__(self, feature: str, *, package: str, extra: str | None = None) -> None:
        wanted = f"omnigraph[{extra}]" if extra else package
        super().__init__(
            f"{feature} needs the package '{package}', which is not installed",
            remedy=f"install it: pip install '{wanted}'",
        )
        self.feature = feature
        self.package = package


class QueryCancelled(OmnigraphError):
    """A query was stopped before it was done, by its caller or by its time limit."""

    code = "query_cancelled"
    status = 408


class MethodNotAllowed(OmnigraphError):
    """A path of a server does not offer this method; `allowed` has those it offers."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, method: str, path: str, allowed: Sequence[str]) -> None:
        super().__init__(f"{method} is not offered at {path}", remedy=f"use {' or '.join(allowed)}")
        self.allowed = tuple(allowed)


class UnsupportedMediaType(BadRequest):
    """A request body has another content type than its route takes."""

    code = "unsupported_media_type"
    status = 415

    def __init__(self, found: str | None, expected: str) -> None:
        what = f"'{found}'" if found else "missing"
        super().__init__(
            f"the content type is {what}; this route takes {expected}",
            remedy=f"send the header 'Content-Type: {expected}'",
        )
        self.found = found
        self.expected = expected


class RequestTimeout(OmnigraphError):
    """A request body did not arrive in time."""

    code = "request_timeout"
    status = 408
    retryable = True


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

    def __init__(
        self,
        message: str,
        *,
        actor: str | None = None,
        action: str | None = None,
        branch: str | None = None,
        target_branch: str | None = None,
    ) -> None:
        super().__init__(message, remedy="ask an administrator for a rule that allows it")
        self.actor = actor
        self.action = action
        self.branch = branch
        self.target_branch = target_branch


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

    def __init__(self, branch: str, *, hint: str = "") -> None:
        super().__init__(
            f"branch '{branch}' not found{hint}",
            remedy="list the branches with `omnigraph branch list` (`graph.branches`)",
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


class TagNotFound(NotFound):
    """The graph has no tag of this name."""

    code = "tag_not_found"

    def __init__(self, tag: str) -> None:
        super().__init__(
            f"tag '{tag}' not found", remedy="list the tags with `omnigraph tag list` (`graph.tags`)"
        )
        self.tag = tag


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
