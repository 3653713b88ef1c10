"""Which failures mean damaged data, and which are temporary.

A record whose branch or table is damaged waits for a person, and may be abandoned. One whose store does not
answer is retried by the next writer, and may not be abandoned.
"""

from __future__ import annotations

import errno

from omnigraph.errors import CorruptGraph, OmnigraphError, RecoveryRequired, StorageFailure
from omnigraph.storage.failures import FailureKind, TableFailureKind, system_error

_PASSING: frozenset[str] = frozenset(
    {
        # The store does not answer, or denies access: the data is not damaged.
        TableFailureKind.TRANSIENT,
        TableFailureKind.CONFIGURATION,
        FailureKind.TRANSIENT,
        FailureKind.CONFIGURATION,
        FailureKind.PRECONDITION,
        # A lost race, or an obstacle that recovery or a writer removes.
        TableFailureKind.CONTENTION,
        TableFailureKind.CONFLICT,
        TableFailureKind.MOVED,
        TableFailureKind.DISPLACED,
        TableFailureKind.UNDECIDED,
        TableFailureKind.EXISTS,
        TableFailureKind.RESIDUE,
        TableFailureKind.IN_USE,
    }
)


_OF_THE_FILES = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""Errors about files; all others are about the disk, the network or the process."""


def is_damage(error: OmnigraphError) -> bool:
    """Whether reading a branch or a table will fail in the same way until it is repaired."""
    if isinstance(error, StorageFailure):
        return error.kind not in _PASSING and system_error(error.__cause__) in (None, *_OF_THE_FILES)
    return isinstance(error, CorruptGraph | RecoveryRequired)


def reason_of(error: OmnigraphError) -> str:
    """Return the reason of a failed recovery, without its operation."""
    return error.reason if isinstance(error, RecoveryRequired) else error.message
