"""What Spark says about a failure, in one sentence of ours. Its own words are kept as the cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omnigraph.errors import (
    OmnigraphError,
    PipelineCancelled,
    PipelineFailed,
    PipelineWorkerLost,
    SparkUnavailable,
)
from omnigraph.pipeline.carried import delivered

LONGEST = 500
DEEPEST = 20

_WORKER_LOST = ("Python worker exited unexpectedly", "ExecutorLostFailure", "crashed with signal")
_CANCELLED = (
    "OPERATION_CANCELED",
    "cancelled part of cancelled job group",
    "SPARK_JOB_CANCELLED",
    "was cancelled",
)
_GONE = ("SparkContext was shut down", "StatusCode.UNAVAILABLE", "Answer from Java side is empty")
_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt)): (.+)$")
_JAVA_FRAME = re.compile(r"^\s*at [\w.$/<>]+\(.*\)$|^\s*\.\.\. \d+ more$|^Driver stacktrace")

_EMPTY = "Exception thrown in awaitResult"
"""What Spark wraps around a reason, and which is none."""


@contextmanager
def explained(stage: str) -> Iterator[None]:
    """Turn what Spark, its gateway or its client raise into errors of ours."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as failure:
        raise explanation(failure, stage) from failure


def explanation(failure: Exception, stage: str) -> OmnigraphError:
    """The error that says what happened; one that a task of ours raised comes back as itself."""
    text = _text_of(failure)
    if error := delivered(text):
        return error
    if any(mark in text for mark in _CANCELLED):
        return PipelineCancelled(stage)
    if any(mark in text for mark in _WORKER_LOST):
        return PipelineWorkerLost(stage)
    if isinstance(failure, ConnectionError) or any(mark in text for mark in _GONE):
        return SparkUnavailable(f"Spark went away during stage '{stage}'", master="", remedy="run it again")
    return PipelineFailed(stage, reason(text))


def reason(text: str) -> str:
    """The one line of a Spark message that tells what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _JAVA_FRAME.match(line)]
    lines = [line for line in lines if not line.rstrip(": ").endswith(_EMPTY)] or lines
    told = [line for line in lines if _PYTHON_ERROR.match(line)]
    if told:
        return _short(told[-1])
    useful = [line for line in lines if not line.startswith(("SQLSTATE", "JVM stacktrace", "Traceback"))]
    return _short(useful[0] if useful else "Spark gave no reason")


def _short(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."


def _text_of(failure: Exception) -> str:
    """All that is told; of an error in the JVM the causes, the first one first, without the stack."""
    cause: Any = getattr(failure, "java_exception", None)
    told: list[str] = []
    while cause is not None and len(told) < DEEPEST:
        told.insert(0, str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(told) or str(failure)
