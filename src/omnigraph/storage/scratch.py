"""Files that nobody needs once the work they are for is over; what is lost with the machine is no loss."""

from __future__ import annotations

import secrets

from omnigraph.storage.failures import guarded
from omnigraph.storage.inputs import open_input
from omnigraph.storage.lance_errors import Trouble, failure
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore


def write_scratch(objects: ObjectStore, at: Location, body: bytes | memoryview) -> None:
    """Write or replace a file, without waiting for the disk; a reader sees all of it or nothing."""
    if not at.is_local:
        objects.write_bytes(at, bytes(body))
        return
    with guarded("write", at.uri):
        at.path.parent.mkdir(parents=True, exist_ok=True)
        # A task may run twice at a time, so each has a file of its own until it is whole.
        begun = at.path.with_name(f"{at.path.name}#{secrets.randbelow(10**18)}")
        try:
            begun.write_bytes(body)
            begun.replace(at.path)
        finally:
            begun.unlink(missing_ok=True)


def read_scratch(at: Location, begin: int, size: int) -> bytearray:
    """Some bytes of a file."""
    body = bytearray(size)
    filled = 0
    with open_input(at.uri) as stream:
        stream.seek(begin)
        while filled < size and (part := stream.read(size - filled)):
            body[filled : filled + len(part)] = part
            filled += len(part)
    if filled < size:
        raise failure(Trouble.TRANSIENT, "read", at.uri, f"only {filled} of {size} bytes are there")
    return body
