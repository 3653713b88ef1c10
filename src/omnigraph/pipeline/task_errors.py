"""Encodes the errors of tasks for the driver: JSON inside the text of an exception, signed with a key.

Spark hands the driver nothing of a failed task but a text, and other texts of Spark quote values of the data.
So the text is never trusted for looking like ours. Each driver process draws a key, which travels to its
tasks inside their code; a task signs the error it encodes, and the driver reads no payload without a valid
signature. What it reads is JSON: a code, a message, a remedy and facts, rebuilt by the error classes of
`omnigraph.errors`. A side channel (a file, an accumulator, a result row) would need a place that every
executor and a Connect server can write to, or a schema of its own for every DataFrame; the signature needs
neither.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any

from omnigraph import errors
from omnigraph.diagnostics import Diagnostic
from omnigraph.engine.rows.violations import Violation
from omnigraph.errors import InternalError, OmnigraphError, PipelineFailed

LARGEST = 256 * 1024
"""Spark keeps and prints these texts; an error whose JSON is larger travels without its facts."""
_LONGEST_MESSAGE = 2000

_MARK = "omnigraph-error"
_SIGNED = re.compile(_MARK + r":([0-9a-f]{64}):([A-Za-z0-9+/=]+);")
_VALUES = {kind.__name__: kind for kind in (Diagnostic, Violation)}
"""What facts may hold besides plain values: frozen records of plain values."""


class CarriedError(Exception):
    """What a task raises instead of an `OmnigraphError`."""


@cache
def error_key() -> bytes:
    """Return the key of this driver process, which its tasks are given and nothing else is."""
    return secrets.token_bytes(32)


def encode_error(error: OmnigraphError, key: bytes) -> CarriedError:
    """Return an exception whose text holds the whole error, signed."""
    packed = _packed(error)
    if len(packed) > LARGEST:
        packed = _packed(PipelineFailed("task", str(error)[:_LONGEST_MESSAGE], remedy=error.remedy))
    payload = base64.b64encode(packed).decode()
    return CarriedError(f"{error} {_MARK}:{_signature(payload, key)}:{payload};")


def decode_error(text: str) -> OmnigraphError | None:
    """Return the error that a task of this process signed, if the text holds one."""
    for found in _SIGNED.finditer(text):
        signature, payload = found.groups()
        if hmac.compare_digest(signature, _signature(payload, error_key())):
            return _unpacked(payload)
    return None


def _signature(payload: str, key: bytes) -> str:
    return hmac.new(key, payload.encode(), hashlib.sha256).hexdigest()


def _packed(error: OmnigraphError) -> bytes:
    return json.dumps(_error_to_json(error)).encode()


def _unpacked(payload: str) -> OmnigraphError | None:
    try:
        return _error_from_json(json.loads(base64.b64decode(payload)))
    except (ValueError, KeyError, TypeError, AttributeError):
        # Another version of omnigraph on the executors; the text of Spark is all there is then.
        return None


def _error_to_json(error: OmnigraphError) -> dict[str, Any]:
    public = _classes().values()
    known: type[OmnigraphError] = next(
        (kind for kind in type(error).__mro__ if kind in public), InternalError
    )
    facts = {
        name: _to_json(value) for name, value in vars(error).items() if name not in ("message", "remedy")
    }
    return {"code": known.code, "message": error.message, "remedy": error.remedy, "facts": facts}


def _error_from_json(body: Mapping[str, Any]) -> OmnigraphError:
    kind = _classes()[body["code"]]
    error = kind.__new__(kind, str(body["message"]))
    facts = {str(name): _from_json(value) for name, value in body["facts"].items()}
    vars(error).update(facts, message=str(body["message"]), remedy=body["remedy"])
    return error


@cache
def _classes() -> Mapping[str, type[OmnigraphError]]:
    """The public error classes by code."""
    kinds = [getattr(errors, name) for name in errors.__all__]
    return {kind.code: kind for kind in kinds if kind is not OmnigraphError}


def _to_json(value: Any) -> Any:
    if isinstance(value, Enum):
        return _to_json(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, OmnigraphError):
        return {"error": _error_to_json(value)}
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


def _record(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda fields: kind(**{name: _from_json(field) for name, field in fields.items()})


_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    "error": _error_from_json,
    "dict": lambda pairs: {_from_json(name): _from_json(member) for name, member in pairs},
    "list": lambda items: [_from_json(item) for item in items],
    "tuple": lambda items: tuple(_from_json(item) for item in items),
    **{name: _record(kind) for name, kind in _VALUES.items()},
}
