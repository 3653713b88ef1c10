"""Errors as JSON, for other processes of the same version: rebuilt by their codes; nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any

from omnigraph import errors
from omnigraph.diagnostics import Diagnostic
from omnigraph.engine.rows.violations import Violation
from omnigraph.errors import InternalError, OmnigraphError

_VALUES = {kind.__name__: kind for kind in (Diagnostic, Violation)}
"""What facts may hold besides plain values: frozen records of plain values."""


def error_to_json(error: OmnigraphError) -> dict[str, Any]:
    """Return an error as plain values: its code, message and remedy, and its facts."""
    public = _classes_by_code().values()
    known: type[OmnigraphError] = next(
        (kind for kind in type(error).__mro__ if kind in public), InternalError
    )
    facts = {
        name: _to_json(value) for name, value in vars(error).items() if name not in ("message", "remedy")
    }
    return {"code": known.code, "message": error.message, "remedy": error.remedy, "facts": facts}


def error_from_json(body: Mapping[str, Any]) -> OmnigraphError:
    """Return the error that plain values describe; raises for what `error_to_json` does not write."""
    kind = _classes_by_code()[body["code"]]
    error = kind.__new__(kind, str(body["message"]))
    facts = {str(name): _from_json(value) for name, value in body["facts"].items()}
    vars(error).update(facts, message=str(body["message"]), remedy=body["remedy"])
    return error


@cache
def _classes_by_code() -> Mapping[str, type[OmnigraphError]]:
    """The public error classes by code."""
    kinds = [getattr(errors, name) for name in errors.__all__]
    return {kind.code: kind for kind in kinds if kind is not OmnigraphError}


def _to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return _to_json(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, OmnigraphError):
        return {"error": error_to_json(value)}
    if isinstance(value, Mapping):
        return {"dict": [[_to_json(name), _to_json(member)] for name, member in value.items()]}
    if isinstance(value, list | tuple):
        return {"list" if isinstance(value, list) else "tuple": [_to_json(item) for item in value]}
    if type(value) in _VALUES.values():
        fields = {name: _to_json(getattr(value, name)) for name in type(value).__dataclass_fields__}
        return {type(value).__name__: fields}
    return _to_json(value.to_json()) if hasattr(value, "to_json") else str(value)


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    [(tag, content)] = value.items()
    decode: Callable[[Any], Any] = _DECODERS[tag]
    return decode(content)


def _record_decoder(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda fields: kind(**{name: _from_json(field) for name, field in fields.items()})


_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "error": error_from_json,
    "dict": lambda pairs: {_from_json(name): _from_json(member) for name, member in pairs},
    "list": lambda items: [_from_json(item) for item in items],
    "tuple": lambda items: tuple(_from_json(item) for item in items),
    **{name: _record_decoder(kind) for name, kind in _VALUES.items()},
}
