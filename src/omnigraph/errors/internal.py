"""What the request is not to blame for: the store, or an invariant."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError


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


class CopyNotVerified(InternalError):
    """A copy of a graph does not hold what the original holds."""

    code = "copy_not_verified"

    def __init__(self, uri: str, name: str, reason: str) -> None:
        super().__init__(
            f"the copy at '{uri}' is not complete: {name}: {reason}",
            remedy="run the same command again: it copies what is missing or wrong",
        )
        self.uri = uri
        self.name = name
        self.reason = reason


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
    """It is unknown whether the graph was created."""

    code = "initialization_indeterminate"

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(
            f"cannot tell whether '{uri}' was initialised: {reason}",
            remedy="make the store reachable and try to open the graph",
        )
        self.uri = uri
        self.reason = reason
