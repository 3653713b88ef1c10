"""Detect files that Lance wrote only in part.

On a disk that is getting full Lance can lose the end of a file and report success. So in a folder every new
file is measured before a commit names it; a bucket stores an object completely or not at all.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omnigraph.storage.lance_errors import TableFailureKind, table_failure
from omnigraph.storage.location import Location

_ARROW_END = b"ARROW1"
_NO_RUNS, _WITH_RUNS = 12_346, 12_347
"""How a Roaring bitmap begins; the second kind may hold runs."""
_OFFSETS_FROM = 4
"""A bitmap with runs lists the places of its containers from so many on."""
_LARGEST_ARRAY, _BITSET_BYTES = 4_096, 8_192


def require_complete_files(doing: str, location: Location, uri: str, change: Any) -> None:
    """Refuse a staged operation, or a rewrite, whose new files are shorter than Lance meant them to be."""
    if not location.is_local:
        return
    fragments = change.new_fragments if hasattr(change, "new_fragments") else change.fragments
    for file in (file for fragment in fragments for file in fragment.files):
        meant, stored = file.file_size_bytes, os.stat(f"{uri}/data/{file.path}").st_size  # noqa: PTH116
        if meant is not None and stored != meant:
            reason = f"only {stored} of {meant} bytes of a data file were stored"
            raise table_failure(TableFailureKind.TRANSIENT, doing, uri, reason)


def require_complete_deletion_files(
    doing: str, location: Location, uri: str, change: Any, known: Mapping[int, Any]
) -> None:
    """Refuse a staged operation whose new files of deleted rows were cut off.

    `known` are the fragments before the change: what one of them names already is not read.
    """
    if not location.is_local:
        return
    for fragment in change.updated_fragments:
        file, before = fragment.deletion_file, known[fragment.id].deletion_file
        if file is None or file.base_id is not None or (before is not None and before.id == file.id):
            continue
        body = Path(uri, file.path(fragment.id)).read_bytes()
        if not (body.endswith(_ARROW_END) if file.file_type == "array" else is_complete_bitmap(body)):
            reason = f"only {len(body)} bytes of a file of deleted rows were stored"
            raise table_failure(TableFailureKind.TRANSIENT, doing, uri, reason)


def is_complete_bitmap(body: bytes) -> bool:
    """Whether a Roaring bitmap has all the bytes that its header and its containers ask for."""
    try:
        return _bitmap_size(body) == len(body)
    except struct.error:
        return False  # the header itself is cut off


def _bitmap_size(body: bytes) -> int:
    at: int
    (cookie,) = struct.unpack_from("<I", body)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = body[4 : 4 + (count + 7) // 8]
        at = 4 + (count + 7) // 8
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", body, 4)
        flags, at, has_offsets = bytes((count + 7) // 8), 8, True
    else:
        return -1
    cardinalities: list[int] = [one + 1 for one in struct.unpack_from(f"<{2 * count}H", body, at)[1::2]]
    at += 4 * count + (4 * count if has_offsets else 0)
    for number, cardinality in enumerate(cardinalities):
        if flags[number // 8] >> number % 8 & 1:
            (runs,) = struct.unpack_from("<H", body, at)
            at += 2 + 4 * runs
        else:
            at += 2 * cardinality if cardinality <= _LARGEST_ARRAY else _BITSET_BYTES
    return at
