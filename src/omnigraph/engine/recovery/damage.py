"""Which failures tell that something stored is damaged, and which only that it cannot be had at this moment.

A record whose branch or table is damaged waits for a person, and may be given up. One that the store merely
does not answer for is tried again by whoever comes next, and nobody may give it up.
"""

from __future__ import annotations

import errno

from omnigraph.errors import CorruptGraph, OmnigraphError, RecoveryRequired, StorageFailure
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.lance_errors import Trouble, system_error

_PASSING: frozenset[str] = frozenset(
    {
        # The store does not answer, or does not let us: that is not the fault of what is stored.
        Trouble.TRANSIENT,
        Trouble.CONFIGURATION,
        FailureKind.TRANSIENT,
        FailureKind.CONFIGURATION,
        FailureKind.PRECONDITION,
        # Somebody else was faster, or something stands in the way that recovery or a writer removes.
        Trouble.CONTENTION,
        Trouble.CONFLICT,
        Trouble.MOVED,
        Trouble.DISPLACED,
        Trouble.UNDECIDED,
        Trouble.EXISTS,
        Trouble.RESIDUE,
        Trouble.IN_USE,
    }
)


_OF_THE_FILES = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""What the system says of files; anything else it says of the disk, the network or the process."""


def is_damage(error: OmnigraphError) -> bool:
    """Whether looking at a branch or a table will fail in the same way until somebody mends it."""
    if isinstance(error, StorageFailure):
        return error.kind not in _PASSING and system_error(error.__cause__) in (None, *_OF_THE_FILES)
    return isinstance(error, CorruptGraph | RecoveryRequired)


def reason_of(error: OmnigraphError) -> str:
    """What is in the way of a recovery, without the operation that it belongs to."""
    return error.reason if isinstance(error, RecoveryRequired) else error.message
