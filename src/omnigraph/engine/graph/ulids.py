"""Texts of ULIDs: 48 bits of time and 80 random ones, 26 digits that sort as the bits do."""

from __future__ import annotations

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple(high + low for high in _DIGITS for low in _DIGITS)
_SHIFTS = range(120, -1, -10)


def ulid(milliseconds: int, entropy: bytes) -> str:
    """The ULID of a moment since 1970, with ten random bytes."""
    bits = milliseconds << 80 | int.from_bytes(entropy)
    return "".join([_PAIRS[bits >> shift & 1023] for shift in _SHIFTS])
