"""An error of ours on its way out of a task: Spark hands on texts, so it travels inside one."""

from __future__ import annotations

import base64
import binascii
import pickle
import re

from omnigraph.errors import OmnigraphError, PipelineFailed

# Spark keeps and prints these texts; an error that is larger than this goes without its facts.
LARGEST = 256 * 1024

_MARK = "omnigraph-error"
_CARRIED = re.compile(_MARK + r"<([A-Za-z0-9+/=]+)>")


class CarriedError(Exception):
    """What a task raises instead of an `OmnigraphError`."""


def carried(error: OmnigraphError) -> CarriedError:
    """The error as one whose text holds all of it."""
    packed = pickle.dumps(error)
    if len(packed) > LARGEST:
        packed = pickle.dumps(PipelineFailed("task", str(error)[:2000], remedy=error.remedy))
    return CarriedError(f"{error} {_MARK}<{base64.b64encode(packed).decode()}>")


def delivered(text: str) -> OmnigraphError | None:
    """The error that a text carries, if it does."""
    found = _CARRIED.search(text)
    if found is None:
        return None
    try:
        error = pickle.loads(base64.b64decode(found.group(1)))
    except (binascii.Error, pickle.UnpicklingError, EOFError, AttributeError, ImportError):
        # Another version of omnigraph on the executors; what Spark says is all there is then.
        return None
    return error if isinstance(error, OmnigraphError) else None
