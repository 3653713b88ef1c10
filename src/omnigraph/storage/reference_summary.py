"""What the references of a table say, in one file: in a bucket each of them would be a request.

The file is derived. It may be missing, damaged or out of date at any time. An entry counts only while the
store lists the reference with the ETag that the entry was read under: an ETag stands for a content, so what
matches is never wrong, also when a branch was deleted and its name used again.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from omnigraph.errors import StorageFailure
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore

FORMAT = 1
SUFFIX = ".forks"

_log = logging.getLogger(__name__)


class TaggedReference(NamedTuple):
    """The content of a reference, and the ETag of that content."""

    tag: str
    body: bytes


class _Summary(msgspec.Struct, frozen=True):
    format: int
    references: dict[str, TaggedReference]


_decoder = msgspec.msgpack.Decoder(_Summary)


def summary_place(derived: Location, table: Location) -> Location:
    """Return where the summary of a table is, given the folder for derived files of its graph."""
    root = derived.uri.rpartition("/")[0]
    return derived / f"{table.uri.removeprefix(f'{root}/').replace('/', '-')}{SUFFIX}"


def read_summary(objects: ObjectStore, at: Location) -> Mapping[str, TaggedReference]:
    """Return the references on file by the name of the fork; nothing when the file is missing or damaged."""
    try:
        stored = objects.read_bytes_if_exists(at)
        # The checksum is a part of the compressed form.
        found = None if stored is None else _decoder.decode(zlib.decompress(stored))
    except (StorageFailure, zlib.error, msgspec.MsgspecError) as error:
        _log.info("every reference is read: '%s' cannot be used: %s", at.uri, error)
        return {}
    return found.references if found is not None and found.format == FORMAT else {}


def write_summary(objects: ObjectStore, at: Location, references: Mapping[str, TaggedReference]) -> None:
    """Replace the summary of a table; a store that refuses fails no operation."""
    body = msgspec.msgpack.encode(_Summary(FORMAT, dict(references)))
    try:
        objects.write_bytes(at, zlib.compress(body))
    except StorageFailure as failure:
        _log.info("the next process reads every reference: %s", failure)
