"""The one place where a failure of Lance, of the file system or of an object store gets its class and remedy.

Lance raises builtin exceptions whose texts end with a place in its own source. Each text we depend on is
listed here once, and tests provoke those that are Lance's own, so a release that rewords one turns red
there and not in a graph.
"""

from __future__ import annotations

import errno
import re
from enum import StrEnum

import pyarrow as pa

from omnigraph.errors import StorageFailure


class FailureKind(StrEnum):
    """What a storage failure says about a second attempt; it is evidence, never a licence to replay."""

    TRANSIENT = "Transient"
    CONFIGURATION = "Configuration"
    NOT_FOUND = "NotFound"
    PRECONDITION = "Precondition"
    PERMANENT = "Permanent"
    UNKNOWN = "Unknown"


SAYS_NOTHING = (FailureKind.TRANSIENT, FailureKind.CONFIGURATION)
"""Failures that are about the storage or its credentials, and not about what is stored."""

_Verdict = tuple[FailureKind, str | None]

_FREE_SPACE = "free some space, then try again"
_PERMISSION = "check who owns the folder and its permissions"
_HARD_LINKS = "use a file system with hard links"
_RAISE_LIMIT = "close other files or raise the limit of open files"
_REACHABLE = "check the network and AWS_ENDPOINT_URL, then try again"
_CREDENTIALS = "check the AWS credentials and what they are allowed to do"

_OS_VERDICTS: dict[int, _Verdict] = {
    errno.ENOENT: (FailureKind.NOT_FOUND, None),
    errno.EEXIST: (FailureKind.PRECONDITION, None),
    errno.EACCES: (FailureKind.CONFIGURATION, _PERMISSION),
    errno.EPERM: (FailureKind.CONFIGURATION, _PERMISSION),
    errno.EROFS: (FailureKind.CONFIGURATION, "the file system is read-only; open the graph read-only"),
    errno.ENOSPC: (FailureKind.TRANSIENT, _FREE_SPACE),
    errno.EDQUOT: (FailureKind.TRANSIENT, _FREE_SPACE),
    errno.EFBIG: (FailureKind.PERMANENT, "raise the file size limit"),
    errno.EMFILE: (FailureKind.TRANSIENT, _RAISE_LIMIT),
    errno.ENFILE: (FailureKind.TRANSIENT, _RAISE_LIMIT),
    errno.EXDEV: (FailureKind.CONFIGURATION, "keep the whole graph on one file system"),
    errno.ENOTSUP: (FailureKind.CONFIGURATION, "use a local file system"),
    errno.EOPNOTSUPP: (FailureKind.CONFIGURATION, "use a local file system"),
    errno.ENOSYS: (FailureKind.CONFIGURATION, "use a local file system"),
    errno.ENOLCK: (FailureKind.CONFIGURATION, "use a file system with record locks"),
    errno.EINTR: (FailureKind.TRANSIENT, None),
    errno.EAGAIN: (FailureKind.TRANSIENT, None),
    errno.EBUSY: (FailureKind.TRANSIENT, None),
    errno.ETIMEDOUT: (FailureKind.TRANSIENT, None),
    errno.ENOTEMPTY: (FailureKind.TRANSIENT, "another process is writing there; try again"),
    errno.ESTALE: (FailureKind.TRANSIENT, "the network file system lost its place; try again"),
    errno.EIO: (FailureKind.PERMANENT, "check the disk"),
    errno.ENAMETOOLONG: (FailureKind.PERMANENT, "choose a shorter name"),
    errno.ELOOP: (FailureKind.PERMANENT, "remove the circular link"),
    errno.EISDIR: (FailureKind.PERMANENT, "a folder has this name; move it away"),
    errno.ENOTDIR: (FailureKind.PERMANENT, "a file has the name of a folder; move it away"),
}

# A file system that knows no hard links answers with one of these, EPERM on Linux.
_NO_HARD_LINKS = (errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

# Distinguished by class name, so that a folder never pays for importing the S3 client. A missing object is
# a built-in FileNotFoundError without an errno.
_OBSTORE_VERDICTS: dict[str, _Verdict] = {
    "AlreadyExistsError": (FailureKind.PRECONDITION, None),
    "PreconditionError": (FailureKind.PRECONDITION, None),
    "NotModifiedError": (FailureKind.PRECONDITION, None),
    "PermissionDeniedError": (FailureKind.CONFIGURATION, _CREDENTIALS),
    "UnauthenticatedError": (FailureKind.CONFIGURATION, _CREDENTIALS),
    "NotSupportedError": (FailureKind.CONFIGURATION, "use an S3 store with conditional puts"),
    "UnknownConfigurationKeyError": (FailureKind.CONFIGURATION, "check the AWS settings"),
    "InvalidPathError": (FailureKind.PERMANENT, "choose another name"),
    "JoinError": (FailureKind.UNKNOWN, None),
}

# S3 answers 404 for a missing bucket too; that is a wrong address, not an absent object.
_MISSING_BUCKET = "NoSuchBucket"
_NO_CREDENTIALS = (
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "InvalidToken",
    "ExpiredToken",
    "CredentialsError",
)

# What the S3 client says about a bucket that is not set up: (what its text holds, the reason, the remedy).
_NOT_SET_UP = (
    (
        re.compile(r"169\.254\.(?:169\.254|170\.2)"),
        "there are no AWS credentials: no keys are set, and this machine has no role",
        (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; those of a profile are shown by "
            "`aws configure export-credentials --format env`"
        ),
    ),
    (
        re.compile("PermanentRedirect|AuthorizationHeaderMalformed|incorrectly configured region"),
        "the bucket is in another region",
        "set AWS_REGION to the region of the bucket",
    ),
    (
        re.compile(_MISSING_BUCKET),
        "there is no such bucket (NoSuchBucket)",
        "create the bucket, or check its name, AWS_REGION and AWS_ENDPOINT_URL",
    ),
)
_NO_ANSWER = re.compile(r"Error performing \w+ (https?://[^/\s]+).*error sending request", re.DOTALL)

_UNREACHABLE = ("error sending request", "connection", "timed out", "timeout", "dns error")
_SERVER_BUSY = ("status 5", "status: 5", "SlowDown", "ServiceUnavailable", "InternalError", "429")

_S3_ANSWER = re.compile(r"<Code>(?P<code>\w+)</Code>\s*<Message>(?P<message>[^<]*)</Message>")


def classify_store_error(failure: BaseException, *, linking: bool = False) -> _Verdict:
    """The class of a failure and what to do about it; `linking` says that a hard link was being made."""
    if linking and isinstance(failure, OSError) and failure.errno in _NO_HARD_LINKS:
        return FailureKind.CONFIGURATION, _HARD_LINKS
    if isinstance(failure, OSError) and failure.errno is not None:
        return _OS_VERDICTS.get(failure.errno, (FailureKind.UNKNOWN, None))
    text = str(failure)
    for sign, _, remedy in _NOT_SET_UP:
        if sign.search(text):
            return FailureKind.CONFIGURATION, remedy
    if any(sign in text for sign in _NO_CREDENTIALS):
        return FailureKind.CONFIGURATION, _CREDENTIALS
    if isinstance(failure, FileNotFoundError):
        return FailureKind.NOT_FOUND, None
    known = _OBSTORE_VERDICTS.get(type(failure).__name__)
    if known is not None:
        return known
    if any(sign in text for sign in (*_UNREACHABLE, *_SERVER_BUSY)):
        return FailureKind.TRANSIENT, _REACHABLE
    return FailureKind.UNKNOWN, None


def is_absent(failure: BaseException) -> bool:
    """True only when the failure proves that the object is not there."""
    return classify_store_error(failure)[0] is FailureKind.NOT_FOUND


def is_precondition(failure: BaseException) -> bool:
    """True only when the failure proves that a condition of a put did not hold."""
    return classify_store_error(failure)[0] is FailureKind.PRECONDITION


def storage_failure(failure: BaseException, doing: str, uri: str, *, linking: bool = False) -> StorageFailure:
    """The typed error for a failure met while `doing` something to `uri`."""
    kind, remedy = classify_store_error(failure, linking=linking)
    return StorageFailure(
        f"cannot {doing} '{uri}': {_describe_reason(failure)}", kind=kind, uri=uri, remedy=remedy
    )


def not_found(uri: str) -> StorageFailure:
    """The typed error for an object that is not there."""
    return StorageFailure(f"'{uri}' does not exist", kind=FailureKind.NOT_FOUND, uri=uri)


class wrap_os_errors:  # noqa: N801 - a block; not made of a generator, for there are many in every write
    """Turns operating system errors inside the block into typed ones."""

    __slots__ = ("_doing", "_uri")

    def __init__(self, doing: str, uri: str) -> None:
        self._doing = doing
        self._uri = uri

    def __enter__(self) -> None:
        return None

    def __exit__(self, _: object, failure: BaseException | None, __: object) -> None:
        if isinstance(failure, OSError):
            raise storage_failure(failure, self._doing, self._uri) from failure


def _describe_reason(failure: BaseException) -> str:
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    text = str(failure)
    for sign, reason, _ in _NOT_SET_UP:
        if sign.search(text):
            return reason
    silent = _NO_ANSWER.search(text)
    if silent is not None:
        return f"{silent[1]} does not answer"
    answer = _S3_ANSWER.search(text)
    if answer is not None:
        return f"{answer['message'].rstrip('.')} ({answer['code']})"
    # The S3 client appends its internal structures after an empty line.
    return text.split("\n\n", 1)[0].strip() or type(failure).__name__


class TableFailureKind(StrEnum):
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
    """It is unknown whether the change landed, or it may still land."""
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
    FOREIGN = "ForeignBase"
    """A fork names files of something that is not its table; they are not read."""
    UNKNOWN = "Unknown"


# What Lance and the libraries below it raise; anything else is not theirs and passes unchanged.
LANCE_RAISES = (OSError, ValueError, TypeError, KeyError, RuntimeError, pa.ArrowException)

_PANIC = "PanicException"
"""Every library built with PyO3 has a class of this name of its own, and none can be imported."""

# The first text found in the message decides, so the narrower text stands before the wider one.
_TEXTS: tuple[tuple[str, TableFailureKind], ...] = (
    ("Too many concurrent writers", TableFailureKind.CONTENTION),
    ("Retryable commit conflict", TableFailureKind.CONFLICT),
    ("Incompatible transaction", TableFailureKind.CONFLICT),
    ("Commit conflict for version", TableFailureKind.CONFLICT),
    ("Ambiguous merge inserts", TableFailureKind.DUPLICATE_KEYS),
    ("Append with different schema", TableFailureKind.INVALID),
    ("Dataset already exists", TableFailureKind.EXISTS),
    ("_versions/0.manifest was not found", TableFailureKind.EXISTS),
    ("Clone operation should not enter build_manifest", TableFailureKind.EXISTS),
    ("versions, can not delete", TableFailureKind.IN_USE),
    ("Ref conflict error", TableFailureKind.EXISTS),
    ("Ref is invalid", TableFailureKind.INVALID),
    ("Ref not found error", TableFailureKind.NOT_FOUND),
    ("Permission denied", TableFailureKind.CONFIGURATION),
    ("AccessDenied", TableFailureKind.CONFIGURATION),
    ("403 Forbidden", TableFailureKind.CONFIGURATION),
    ("InvalidAccessKeyId", TableFailureKind.CONFIGURATION),
    ("SignatureDoesNotMatch", TableFailureKind.CONFIGURATION),
    ("NoSuchBucket", TableFailureKind.CONFIGURATION),
    ("No space left on device", TableFailureKind.TRANSIENT),
    ("Disk quota exceeded", TableFailureKind.TRANSIENT),
    ("File too large", TableFailureKind.TRANSIENT),
    ("Read-only file system", TableFailureKind.CONFIGURATION),
    ("error sending request", TableFailureKind.TRANSIENT),
    ("operation timed out", TableFailureKind.TRANSIENT),
    ("SlowDown", TableFailureKind.TRANSIENT),
    ("500 Internal Server Error", TableFailureKind.TRANSIENT),
    ("502 Bad Gateway", TableFailureKind.TRANSIENT),
    ("503 Service Unavailable", TableFailureKind.TRANSIENT),
    ("504 Gateway Timeout", TableFailureKind.TRANSIENT),
    ("429 Too Many Requests", TableFailureKind.TRANSIENT),
    ("error decoding response body", TableFailureKind.TRANSIENT),
    ("request or response body error", TableFailureKind.TRANSIENT),
    ("onnection reset", TableFailureKind.TRANSIENT),
    ("onnection closed", TableFailureKind.TRANSIENT),
    ("Too many open files", TableFailureKind.TRANSIENT),
    ("Cannot allocate memory", TableFailureKind.TRANSIENT),
    ("Stale file handle", TableFailureKind.TRANSIENT),
    # Only a store's own answer proves absence, so the cause decides and not the sentence around it.
    ("was not found: Not found:", TableFailureKind.NOT_FOUND),
    ("Not found:", TableFailureKind.RECLAIMED),
)

_REMEDIES: dict[TableFailureKind, str] = {
    TableFailureKind.CONTENTION: "read again and retry the write",
    TableFailureKind.CONFLICT: "read again and retry the write",
    TableFailureKind.MOVED: "read again and retry the write",
    TableFailureKind.UNDECIDED: "make the store reachable, then check if the write landed before a retry",
    TableFailureKind.RECLAIMED: "read the newest version; if that fails too, the graph is damaged",
    TableFailureKind.INDEX_LOST: "optimize the branch: it rebuilds the index",
    TableFailureKind.RESIDUE: "retry; the next writer of the branch removes what is left",
    TableFailureKind.IN_USE: "delete the dependent branches first",
    TableFailureKind.FOREIGN: "restore the branch from a backup, or delete it",
    TableFailureKind.CONFIGURATION: "check the credentials and permissions for this place",
    TableFailureKind.TRANSIENT: "make the store reachable and see that it has space, then try again",
}

# Where Lance's own words mislead or describe its internals.
_REASONS: dict[TableFailureKind, str] = {
    TableFailureKind.CONTENTION: "another writer was faster",
    TableFailureKind.EXISTS: "it exists already",
}

_INTERRUPTED = "External error: KeyboardInterrupt"
"""What is left of Ctrl-C that was pressed while Arrow waited for rows of Lance."""

_INDEX_FILE = re.compile(r"/_indices/[0-9a-f]{8}-[0-9a-f-]{27}/")
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")
_SOURCE_PLACE = re.compile(r",?\s+\S+\.rs:\d+:\d+")


def classify_lance_error(error: BaseException) -> TableFailureKind:
    """Which trouble an exception of Lance stands for."""
    trouble, text = _classify_message(error), str(error)
    return (
        TableFailureKind.INDEX_LOST
        if trouble == TableFailureKind.RECLAIMED and _INDEX_FILE.search(text)
        else trouble
    )


def _classify_message(error: BaseException) -> TableFailureKind:
    # Not above: files and locks are used without Lance, which must not be loaded before a process forks.
    from lance.commit import CommitConflictError

    text = str(error)
    if text.startswith("Invalid user input"):
        # What follows quotes the user and may hold any of the texts below.
        return TableFailureKind.INVALID
    for part, trouble in _TEXTS:
        if part in text:
            return trouble
    if "404 Not Found" in text:
        # A bucket's answer; about the description of a version, or about a file the version needs.
        return TableFailureKind.NOT_FOUND if "was not found: " in text else TableFailureKind.RECLAIMED
    if isinstance(error, CommitConflictError):
        return TableFailureKind.CONFLICT
    if isinstance(error, PermissionError):
        return TableFailureKind.CONFIGURATION
    if isinstance(error, pa.ArrowInvalid):
        return TableFailureKind.INVALID
    return TableFailureKind.UNKNOWN


def system_error(error: BaseException | None) -> int | None:
    """Return the errno of the operating system behind any exception, if there is one."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _SYSTEM_ERROR.search(str(error))
    return int(found[1]) if found else None


def table_failure(trouble: TableFailureKind, operation: str, uri: str, reason: str) -> StorageFailure:
    """The typed error for one trouble with one table."""
    return StorageFailure(
        f"table '{uri}': {operation.replace('_', ' ')} failed: {reason}",
        kind=trouble,
        uri=uri,
        remedy=_REMEDIES.get(trouble),
    )


class wrap_lance_errors:  # noqa: N801 - a block; a generator would be too slow for every read and write
    """Raises Lance's errors as `StorageFailure` with a `TableFailureKind`, and Ctrl-C as itself."""

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
            # Lance panicked. Its class is no `Exception`, so handlers of failures would miss it.
            reason = f"Lance broke off: {_strip_source_location(error)}"
            raise table_failure(TableFailureKind.UNKNOWN, self._operation, self._uri, reason) from error
        if str(error).startswith(_INTERRUPTED):
            raise KeyboardInterrupt from error
        trouble = classify_lance_error(error)
        reason = _REASONS.get(trouble) or _strip_source_location(error)
        raise table_failure(trouble, self._operation, self._uri, reason) from error


def _strip_source_location(error: BaseException) -> str:
    return _SOURCE_PLACE.sub("", str(error))


def is_missing_transaction(error: BaseException) -> bool:
    """Whether Lance failed only to describe a transaction: its binding cannot build a rewritten index."""
    return isinstance(error, TypeError) and "RewrittenIndex.__init__" in str(error)
