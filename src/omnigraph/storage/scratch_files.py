"""Scratch files of one operation: not synced, because losing them with the machine costs nothing."""

from __future__ import annotations

import secrets

from omnigraph.storage.failures import wrap_os_errors
from omnigraph.storage.input_files import open_input
from omnigraph.storage.lance_errors import TableFailureKind, table_failure
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore


def write_scratch(objects: ObjectStore, at: Location, body: bytes | memoryview) -> None:
    """Write or replace a scratch file without syncing it; a reader sees all of it or nothing."""
    if not at.is_local:
        objects.write_bytes(at, bytes(body))
        return
    with wrap_os_errors("write", at.uri):
        at.path.parent.mkdir(parents=True, exist_ok=True)
        # A task may run twice at a time, so each has a file of its own until it is whole.
        begun = at.path.with_name(f"{at.path.name}#{secrets.randbelow(10**18)}")
        try:
            begun.write_bytes(body)
            begun.replace(at.path)
        finally:
            begun.unlink(missing_ok=True)


def read_scratch(at: Location, begin: int, size: int) -> bytearray:
    """Return `size` bytes of a scratch file from `begin`; fails when the file is shorter."""
    body = bytearray(size)
    filled = 0
    with open_input(at.uri) as stream:
        stream.seek(begin)
        while filled < size and (part := stream.read(size - filled)):
            body[filled : filled + len(part)] = part
            filled += len(part)
    if filled < size:
        raise table_failure(
            TableFailureKind.TRANSIENT, "read", at.uri, f"only {filled} of {size} bytes are there"
        )
    return body
