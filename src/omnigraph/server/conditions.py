"""Conditions and ranges of HTTP: what the headers of a request for bytes ask for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import UnsatisfiableRange

_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\uffff]*")')
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """A half-open range of bytes."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """How many bytes."""
        return self.end - self.start


def matches_strongly(headers: Sequence[str], etag: str) -> bool:
    """Whether `If-Match` holds: `*`, or a list with exactly this tag; a malformed list never does."""
    tags = _parse_tags(headers)
    return tags is not None and (tags == ["*"] or etag in tags)


def matches_weakly(headers: Sequence[str], etag: str) -> bool:
    """Whether `If-None-Match` names the tag, weak or not."""
    tags = _parse_tags(headers)
    return tags is not None and (tags == ["*"] or etag in [tag.removeprefix("W/") for tag in tags])


def _parse_tags(headers: Sequence[str]) -> list[str] | None:
    """Return the tags of a list; None when it is malformed."""
    text = ",".join(headers).strip()
    if text == "*":
        return ["*"]
    found = [one.strip() for one in text.split(",")]
    return found if all(_TAG.fullmatch(one) for one in found) else None


def parse_range(ranges: Sequence[str], if_range: Sequence[str], etag: str, size: int) -> ByteRange | None:
    """Return the range that is asked for; None for all bytes, which is also what an unknown range means.

    Raises `UnsatisfiableRange` for one that begins behind the last byte.
    """
    if len(ranges) != 1 or (if_range and list(if_range) != [etag]):
        return None
    asked = _RANGE.fullmatch(ranges[0].strip())
    if asked is None or not (asked[1] or asked[2]):
        return None
    if not asked[1]:
        return _last_bytes(int(asked[2]), size)
    start = int(asked[1])
    end = int(asked[2]) + 1 if asked[2] else size
    if asked[2] and end <= start:
        return None
    if start >= size:
        raise UnsatisfiableRange(start=start, end=end, length=size)
    return ByteRange(start, min(end, size))


def _last_bytes(count: int, size: int) -> ByteRange:
    if not count or not size:
        raise UnsatisfiableRange(start=size, end=size, length=size)
    return ByteRange(max(0, size - count), size)
