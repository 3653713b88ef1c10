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
from functools import cache

from omnigraph.engine.rows.error_json import error_from_json, error_to_json
from omnigraph.errors import OmnigraphError, PipelineFailed

LARGEST = 256 * 1024
"""Spark keeps and prints these texts; an error whose JSON is larger travels without its facts."""
_LONGEST_MESSAGE = 2000

_MARK = "omnigraph-error"
_SIGNED = re.compile(_MARK + r":([0-9a-f]{64}):([A-Za-z0-9+/=]+);")


class CarriedError(Exception):
    """What a task raises instead of an `OmnigraphError`."""


@cache
def error_key() -> bytes:
    """Return the key of this driver process, which its tasks are given and nothing else is."""
    return secrets.token_bytes(32)


def encode_error(error: OmnigraphError, key: bytes) -> CarriedError:
    """Return an exception whose text holds the whole error, signed."""
    packed = _pack_error(error)
    if len(packed) > LARGEST:
        packed = _pack_error(PipelineFailed("task", str(error)[:_LONGEST_MESSAGE], remedy=error.remedy))
    payload = base64.b64encode(packed).decode()
    return CarriedError(f"{error} {_MARK}:{_sign_payload(payload, key)}:{payload};")


def decode_error(text: str) -> OmnigraphError | None:
    """Return the error that a task of this process signed, if the text holds one."""
    for found in _SIGNED.finditer(text):
        signature, payload = found.groups()
        if hmac.compare_digest(signature, _sign_payload(payload, error_key())):
            return _unpack_error(payload)
    return None


def _sign_payload(payload: str, key: bytes) -> str:
    return hmac.new(key, payload.encode(), hashlib.sha256).hexdigest()


def _pack_error(error: OmnigraphError) -> bytes:
    return json.dumps(error_to_json(error)).encode()


def _unpack_error(payload: str) -> OmnigraphError | None:
    try:
        return error_from_json(json.loads(base64.b64decode(payload)))
    except (ValueError, KeyError, TypeError, AttributeError):
        # Another version of omnigraph on the executors; the text of Spark is all there is then.
        return None
