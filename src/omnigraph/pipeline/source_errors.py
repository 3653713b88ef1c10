"""Errors of the format `omnigraph` as Spark shows them: one message with its code, and no stack."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from omnigraph.errors import OmnigraphError

_HIDE = "SPARK_HIDE_TRACEBACK"
_PLANNERS = ("pyspark.sql.worker.", "pyspark.sql.streaming.python_streaming_source_runner")
"""What calls us in processes that plan, commit and ask for offsets; workers of tasks serve others as well."""


@contextmanager
def show_plainly() -> Iterator[None]:
    """Let Spark show the message, the code and the remedy of an error of the block, without a traceback."""
    if not _is_planner(inspect.currentframe()):
        yield
        return
    os.environ.pop(_HIDE, None)
    try:
        yield
    except OmnigraphError as error:
        # Spark passes on nothing but a text.
        os.environ[_HIDE] = "1"
        error.add_note(f"code: {error.code}")
        if error.remedy is not None:
            error.add_note(f"help: {error.remedy}")
        raise


def _is_planner(frame: FrameType | None) -> bool:
    while frame is not None:
        spec = frame.f_globals.get("__spec__")
        if spec is not None and spec.name.startswith(_PLANNERS):
            return True
        frame = frame.f_back
    return False
