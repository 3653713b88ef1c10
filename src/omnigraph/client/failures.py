"""Failures of a server as the errors that a local graph raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from omnigraph import errors
from omnigraph.client.decode import merge_conflict, violation
from omnigraph.diagnostics import Diagnostic
from omnigraph.errors import CompileError, OmnigraphError

_BY_STATUS: Mapping[int, type[OmnigraphError]] = {
    401: errors.Unauthorized,
    403: errors.PolicyDenied,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.NotFound,
    412: errors.Conflict,
    429: errors.TooManyRequests,
    502: errors.Unavailable,
    503: errors.Unavailable,
    504: errors.Unavailable,
}
"""What stands for an error that this version does not know."""


def rebuild_error(status: int, body: bytes, source_name: str | None = None) -> OmnigraphError:
    """Return the typed error in the body of an answer, or one that its status stands for."""
    members = _members(body)
    message = members.get("error")
    if not isinstance(message, str) or not message:
        message = f"the server answered with status {status}"
    remedy = members.get("remedy")
    kind = _KINDS.get(str(members.get("error_code")))
    try:
        if kind is not None:
            facts = {name: _decode_fact(name, value) for name, value in _data(members).items()}
            return _name_source(_assemble(kind, message, remedy, facts), source_name)
    except (LookupError, TypeError, ValueError):
        pass  # a server of another version describes it differently: the status still says what it is
    return _by_status(status, message, remedy)


def _assemble(
    kind: type[OmnigraphError], message: str, remedy: Any, facts: Mapping[str, Any]
) -> OmnigraphError:
    """Return an error without its constructor, which would write the message again."""
    error = kind.__new__(kind, message)
    OmnigraphError.__init__(error, message, remedy=remedy if isinstance(remedy, str) else None)
    error.__dict__.update(facts)
    return error


def _by_status(status: int, message: str, remedy: Any) -> OmnigraphError:
    kind = _BY_STATUS.get(status) or (errors.InternalError if status >= 500 else errors.BadRequest)
    known = dict.fromkeys(_FACTS.get(kind, ()))
    return _assemble(kind, message, remedy, known)


def _members(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _data(members: Mapping[str, Any]) -> dict[str, Any]:
    found = members.get("data")
    return found if isinstance(found, dict) else {}


def _name_source(error: OmnigraphError, name: str | None) -> OmnigraphError:
    if name is not None and isinstance(error, CompileError):
        error.diagnostics = tuple(replace(found, source_name=name) for found in error.diagnostics)
    return error


def _decode_fact(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    decode = _DECODERS.get(name)
    return tuple(value if decode is None else map(decode, value))


def _diagnostic(found: Mapping[str, Any]) -> Diagnostic:
    start, end = found["span"]["start"], found["span"]["end"]
    return Diagnostic(
        message=found["message"],
        line=found["line"],
        column=found["column"],
        start=start,
        end=end,
        source_line=found["source_line"],
        width=end - start,
        code=found.get("code"),
        help=found.get("help"),
    )


_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "diagnostics": _diagnostic,
    "violations": violation,
    "conflicts": merge_conflict,
}


def _all_kinds(kind: type[OmnigraphError]) -> Iterator[type[OmnigraphError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all_kinds(below)


_KINDS = {kind.code: kind for kind in _all_kinds(OmnigraphError) if kind is not OmnigraphError}
_FACTS: Mapping[type[OmnigraphError], tuple[str, ...]] = {
    errors.PolicyDenied: ("actor", "action", "branch", "target_branch"),
    errors.TooManyRequests: ("actor",),
}
"""The attributes of errors that a status stands for."""
