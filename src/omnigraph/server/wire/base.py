"""The struct all bodies are, and how one value under two names is read."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from omnigraph.errors import BadRequest

Value = TypeVar("Value")


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """A body, or a part of one."""


class Sparse(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """A body whose members are absent when they have no value."""


def resolve_pair(new: str, value: Value | None, old: str, former: Value | None) -> Value | None:
    """Return what a caller sent under the present name or the former one; different values are an error."""
    if value is not None and former is not None and value != former:
        raise BadRequest(f"'{new}' and its former name '{old}' have different values", remedy=f"send '{new}'")
    return former if value is None else value


def require_pair(new: str, value: Value | None, old: str, former: Value | None) -> Value:
    """Like `resolve_pair`, for a member that every request has."""
    found = resolve_pair(new, value, old, former)
    if found is None:
        raise BadRequest(f"the body has no '{new}'")
    return found


def encode(body: Any) -> bytes:
    """Return a body as JSON; a value of an unknown type becomes its text."""
    return _ENCODER.encode(body)


_ENCODER = msgspec.json.Encoder(enc_hook=str)
