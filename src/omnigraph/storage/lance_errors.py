"""What went wrong in Lance, told by its exception: the only place that reads Lance's message texts.

Lance raises builtin exceptions whose texts end with a place in its own source. Each text we depend on is
listed here once, and tests provoke those that are Lance's own, so a release that rewords one turns red
there and not in a graph.
"""

from __future__ import annotations

import re
from enum import StrEnum

import pyarrow as pa
from lance.commit import CommitConflictError

from omnigraph.errors import StorageFailure


class Trouble(StrEnum):
    """The `kind` of a `StorageFailure` that came from a table."""

    CONTENTION = "Contention"
    """A one-shot write lost the race; nothing of it is stored."""
    CONFLICT = "Conflict"
    """A staged change no longer fits the table; nothing of it is visible."""
    MOVED = "Moved"
    """The table's newest version is not the one the change was staged on."""
    DISPLACED = "Displaced"
    """The change is in the table, but not at the version right after the one it was staged on."""
    UNDECIDED = "Undecided"
    """Nobody could tell whether the change landed, or it may still do so."""
    NOT_FOUND = "NotFound"
    """The table, version or fork is not there."""
    RECLAIMED = "Reclaimed"
    """An open version lost a file: it was collected, or the graph is damaged."""
    INDEX_LOST = "IndexLost"
    """The files of an index are missing; the rows are whole, and can be read without it."""
    EXISTS = "AlreadyExists"
    """The table or fork is there already."""
    RESIDUE = "Residue"
    """A fork's files are there without the fork: its creation was interrupted."""
    IN_USE = "InUse"
    """A fork has forks of its own."""
    INVALID = "Invalid"
    """A column, predicate, value or name does not fit the table."""
    DUPLICATE_KEYS = "DuplicateKeys"
    """Two rows of one change have the same key."""
    TRANSIENT = "Transient"
    """The store did not answer, or has no space."""
    CONFIGURATION = "Configuration"
    """The place or the right to use it is not what the operation needs."""
    UNKNOWN = "Unknown"


# What Lance and the libraries below it raise; anything else is not theirs and passes unchanged.
LANCE_RAISES = (OSError, ValueError, TypeError, KeyError, RuntimeError, pa.ArrowException)

_PANIC = "PanicException"
"""Every library built with PyO3 has a class of this name of its own, and none can be imported."""

# The first text found in the message decides, so the narrower text stands before the wider one.
_TEXTS: tuple[tuple[str, Trouble], ...] = (
    ("Too many concurrent writers", Trouble.CONTENTION),
    ("Retryable commit conflict", Trouble.CONFLICT),
    ("Incompatible transaction", Trouble.CONFLICT),
    ("Commit conflict for version", Trouble.CONFLICT),
    ("Ambiguous merge inserts", Trouble.DUPLICATE_KEYS),
    ("Append with different schema", Trouble.INVALID),
    ("Dataset already exists", Trouble.EXISTS),
    ("_versions/0.manifest was not found", Trouble.EXISTS),
    ("Clone operation should not enter build_manifest", Trouble.EXISTS),
    ("versions, can not delete", Trouble.IN_USE),
    ("Ref conflict error", Trouble.EXISTS),
    ("Ref is invalid", Trouble.INVALID),
    ("Ref not found error", Trouble.NOT_FOUND),
    ("Permission denied", Trouble.CONFIGURATION),
    ("AccessDenied", Trouble.CONFIGURATION),
    ("403 Forbidden", Trouble.CONFIGURATION),
    ("InvalidAccessKeyId", Trouble.CONFIGURATION),
    ("SignatureDoesNotMatch", Trouble.CONFIGURATION),
    ("NoSuchBucket", Trouble.CONFIGURATION),
    ("No space left on device", Trouble.TRANSIENT),
    ("Disk quota exceeded", Trouble.TRANSIENT),
    ("File too large", Trouble.TRANSIENT),
    ("Read-only file system", Trouble.CONFIGURATION),
    ("error sending request", Trouble.TRANSIENT),
    ("operation timed out", Trouble.TRANSIENT),
    ("SlowDown", Trouble.TRANSIENT),
    ("500 Internal Server Error", Trouble.TRANSIENT),
    ("502 Bad Gateway", Trouble.TRANSIENT),
    ("503 Service Unavailable", Trouble.TRANSIENT),
    ("504 Gateway Timeout", Trouble.TRANSIENT),
    ("429 Too Many Requests", Trouble.TRANSIENT),
    ("error decoding response body", Trouble.TRANSIENT),
    ("request or response body error", Trouble.TRANSIENT),
    ("onnection reset", Trouble.TRANSIENT),
    ("onnection closed", Trouble.TRANSIENT),
    ("Too many open files", Trouble.TRANSIENT),
    ("Cannot allocate memory", Trouble.TRANSIENT),
    ("Stale file handle", Trouble.TRANSIENT),
    # Only a store's own answer proves absence, so the cause decides and not the sentence around it.
    ("was not found: Not found:", Trouble.NOT_FOUND),
    ("Not found:", Trouble.RECLAIMED),
)

_REMEDIES: dict[Trouble, str] = {
    Trouble.CONTENTION: "read again and retry the write",
    Trouble.CONFLICT: "read again and retry the write",
    Trouble.MOVED: "read again and retry the write",
    Trouble.UNDECIDED: "make the store reachable, then look whether the write is there before trying again",
    Trouble.RECLAIMED: "read the newest version; if that fails too, the graph is damaged",
    Trouble.INDEX_LOST: "optimize the branch: it builds the index anew",
    Trouble.RESIDUE: "retry; the next writer of the branch removes what is left",
    Trouble.IN_USE: "delete the dependent branches first",
    Trouble.CONFIGURATION: "check the credentials and permissions for this place",
    Trouble.TRANSIENT: "make the store reachable and see that it has space, then try again",
}

# Where Lance's own words mislead or tell of its inner life.
_REASONS: dict[Trouble, str] = {
    Trouble.CONTENTION: "another writer was faster",
    Trouble.EXISTS: "it exists already",
}

_INTERRUPTED = "External error: KeyboardInterrupt"
"""What is left of Ctrl-C that was pressed while Arrow waited for rows of Lance."""

_INDEX_FILE = re.compile(r"/_indices/[0-9a-f]{8}-[0-9a-f-]{27}/")
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
_SOURCE_PLACE = re.compile(r",?\s+\S+\.rs:\d+:\d+")


def classify(error: BaseException) -> Trouble:
    """Which trouble an exception of Lance stands for."""
    trouble, text = _told(error), str(error)
    return Trouble.INDEX_LOST if trouble == Trouble.RECLAIMED and _INDEX_FILE.search(text) else trouble


def _told(error: BaseException) -> Trouble:
    text = str(error)
    if text.startswith("Invalid user input"):
        # What follows quotes the user and may hold any of the texts below.
        return Trouble.INVALID
    for part, trouble in _TEXTS:
        if part in text:
            return trouble
    if "404 Not Found" in text:
        # A bucket's answer; about the description of a version, or about a file the version needs.
        return Trouble.NOT_FOUND if "was not found: " in text else Trouble.RECLAIMED
    if isinstance(error, CommitConflictError):
        return Trouble.CONFLICT
    if isinstance(error, PermissionError):
        return Trouble.CONFIGURATION
    if isinstance(error, pa.ArrowInvalid):
        return Trouble.INVALID
    return Trouble.UNKNOWN


def system_error(error: BaseException | None) -> int | None:
    """The number of the error of the operating system that an exception of anybody tells of, if it does."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    told = _SYSTEM_ERROR.search(str(error))
    return int(told[1]) if told else None


def failure(trouble: Trouble, operation: str, uri: str, reason: str) -> StorageFailure:
    """The typed error for one trouble with one table."""
    return StorageFailure(
        f"table '{uri}': {operation.replace('_', ' ')} failed: {reason}",
        kind=trouble,
        uri=uri,
        remedy=_REMEDIES.get(trouble),
    )


class typed:  # noqa: N801 - a block; not made of a generator, for there are many in every read and write
    """Raises what Lance raises inside as a `StorageFailure` with its `Trouble`, and Ctrl-C as itself."""

    __slots__ = ("_operation", "_uri")

    def __init__(self, operation: str, uri: str) -> None:
        self._operation = operation
        self._uri = uri

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, LANCE_RAISES):
            if error is None or type(error).__name__ != _PANIC:
                return
            # Lance broke off. Its class is no `Exception`, and would pass whoever deals with failures.
            reason = f"Lance broke off: {_plain(error)}"
            raise failure(Trouble.UNKNOWN, self._operation, self._uri, reason) from error
        if str(error).startswith(_INTERRUPTED):
            raise KeyboardInterrupt from error
        trouble = classify(error)
        reason = _REASONS.get(trouble) or _plain(error)
        raise failure(trouble, self._operation, self._uri, reason) from error


def _plain(error: BaseException) -> str:
    return _SOURCE_PLACE.sub("", str(error))


def misses_transaction(error: BaseException) -> bool:
    """Whether Lance failed only to describe a transaction: its binding cannot build a rewritten index."""
    return isinstance(error, TypeError) and "RewrittenIndex.__init__" in str(error)
