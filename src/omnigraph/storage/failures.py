"""The one place where a failure of the file system or the object store gets its class and remedy."""

from __future__ import annotations

import errno
import re
from enum import StrEnum

from omnigraph import errors


class FailureKind(StrEnum):
    """What a storage failure says about a second attempt; it is evidence, never a licence to replay."""

    TRANSIENT = "Transient"
    CONFIGURATION = "Configuration"
    NOT_FOUND = "NotFound"
    PRECONDITION = "Precondition"
    PERMANENT = "Permanent"
    UNKNOWN = "Unknown"


_Verdict = tuple[FailureKind, str | None]

_FREE_SPACE = "free some space, then try again"
_PERMISSION = "check who owns the folder and its permissions"
_HARD_LINKS = "use a file system with hard links"
_RAISE_LIMIT = "close other files or raise the limit of open files"
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
_UNREACHABLE = ("error sending request", "connection", "timed out", "timeout", "dns error")
_SERVER_BUSY = ("status 5", "status: 5", "SlowDown", "ServiceUnavailable", "InternalError", "429")

_S3_ANSWER = re.compile(r"<Code>(?P<code>\w+)</Code>\s*<Message>(?P<message>[^<]*)</Message>")


def classify(failure: BaseException, *, linking: bool = False) -> _Verdict:
    """The class of a failure and what to do about it; `linking` says that a hard link was being made."""
    if linking and isinstance(failure, OSError) and failure.errno in _NO_HARD_LINKS:
        return FailureKind.CONFIGURATION, _HARD_LINKS
    if isinstance(failure, OSError) and failure.errno is not None:
        return _OS_VERDICTS.get(failure.errno, (FailureKind.UNKNOWN, None))
    text = str(failure)
    if _MISSING_BUCKET in text:
        return FailureKind.CONFIGURATION, "create the bucket, or check its name and region"
    if any(sign in text for sign in _NO_CREDENTIALS):
        return FailureKind.CONFIGURATION, _CREDENTIALS
    if isinstance(failure, FileNotFoundError):
        return FailureKind.NOT_FOUND, None
    known = _OBSTORE_VERDICTS.get(type(failure).__name__)
    if known is not None:
        return known
    if any(sign in text for sign in (*_UNREACHABLE, *_SERVER_BUSY)):
        return FailureKind.TRANSIENT, "check that the store can be reached, then try again"
    return FailureKind.UNKNOWN, None


def is_absent(failure: BaseException) -> bool:
    """True only when the failure proves that the object is not there."""
    return classify(failure)[0] is FailureKind.NOT_FOUND


def is_precondition(failure: BaseException) -> bool:
    """True only when the failure proves that a condition of a put did not hold."""
    return classify(failure)[0] is FailureKind.PRECONDITION


def storage_failure(
    failure: BaseException, doing: str, uri: str, *, linking: bool = False
) -> errors.StorageFailure:
    """The typed error for a failure met while `doing` something to `uri`."""
    kind, remedy = classify(failure, linking=linking)
    return errors.StorageFailure(
        f"cannot {doing} '{uri}': {_describe_reason(failure)}", kind=kind, uri=uri, remedy=remedy
    )


def not_found(uri: str) -> errors.StorageFailure:
    """The typed error for an object that is not there."""
    return errors.StorageFailure(f"'{uri}' does not exist", kind=FailureKind.NOT_FOUND, uri=uri)


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
    answer = _S3_ANSWER.search(text)
    if answer is not None:
        return f"{answer['message'].rstrip('.')} ({answer['code']})"
    # The S3 client appends its internal structures after an empty line.
    return text.split("\n\n", 1)[0].strip() or type(failure).__name__
