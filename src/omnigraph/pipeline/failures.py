"""Translates failures of Spark into Omnigraph errors of one sentence; the original stays as the cause."""

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
from omnigraph.lang.values import escape_unprintable
from omnigraph.pipeline.task_errors import decode_error

LONGEST = 500
DEEPEST = 20

_CLASS = r"(?:\(?[\w.$]+(?:Exception|Error)\)?:? )?"
_LOST_TASK = (
    r"(?:Job aborted due to stage failure: Task \d+ in stage [\d.]+ failed \d+ times?, "
    r"most recent failure: Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^()\n]*\): )?"
)
_HEAD = rf"\s*{_CLASS}{_LOST_TASK}{_CLASS}"
"""What Spark writes before a reason. Texts are matched from their beginning: further on they quote data."""
_WORKER_LOST = re.compile(
    _HEAD + r"(?:Python worker (?:exited unexpectedly|process )|ExecutorLostFailure \()", re.ASCII
)
_CANCELLED = re.compile(
    _HEAD
    + r"(?:\[(?:SPARK_JOB_CANCELLED|OPERATION_CANCELED)[\].]"
    + r"|Job \d+ (?:was )?cancelled|Stage \d+ was cancelled)",
    re.ASCII,
)
_GONE = re.compile(
    _HEAD
    + r"(?:(?:\[SPARK_JOB_CANCELLED\] )?Job \d+ cancelled because SparkContext was shut down"
    + r"|<_\w+ of RPC that terminated with:\s+status = StatusCode\.UNAVAILABLE)",
    re.ASCII,
)
_PYTHON_ERROR = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?([A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt)): (.+)$")
_JAVA_FRAME = re.compile(r"^\s*at [\w.$/<>]+\(.*\)$|^\s*\.\.\. \d+ more$|^Driver stacktrace")

_EMPTY = "Exception thrown in awaitResult"
"""Text that Spark wraps around a reason, without content."""


@contextmanager
def translate_failures(stage: str) -> Iterator[None]:
    """Turn exceptions of Spark, its gateway and its client into Omnigraph errors."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as failure:
        raise translate_failure(failure, stage) from failure


def translate_failure(failure: Exception, stage: str) -> OmnigraphError:
    """Return the error that says what happened; one that a task raised comes back as itself."""
    from py4j.protocol import Py4JNetworkError

    texts = _texts_of(failure)
    whole = "\n".join(texts)
    if error := decode_error(whole):
        return error
    if isinstance(failure, ConnectionError | Py4JNetworkError) or any(map(_GONE.match, texts)):
        return SparkUnavailable(f"Spark went away during stage '{stage}'", master="", remedy="run it again")
    if any(map(_CANCELLED.match, texts)):
        return PipelineCancelled(stage)
    if any(map(_WORKER_LOST.match, texts)):
        return PipelineWorkerLost(stage)
    return PipelineFailed(stage, failure_reason(whole))


def start_failure(failure: Exception) -> str:
    """Return the line that says why Spark did not start: that of the innermost cause."""
    return failure_reason("\n".join(_texts_of(failure)))


def failure_reason(text: str) -> str:
    """Return the one line of a Spark message that says what went wrong."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _JAVA_FRAME.match(line)]
    lines = [line for line in lines if not line.rstrip(": ").endswith(_EMPTY)] or lines
    raised = [line for line in lines if _PYTHON_ERROR.match(line)]
    if raised:
        return _shorten_line(raised[-1])
    useful = [line for line in lines if not line.startswith(("SQLSTATE", "JVM stacktrace", "Traceback"))]
    return _shorten_line(useful[0] if useful else "Spark gave no reason")


def _shorten_line(line: str) -> str:
    return escape_unprintable(line if len(line) <= LONGEST else f"{line[:LONGEST]} ...")


def _texts_of(failure: Exception) -> list[str]:
    """The text of a failure; of an error in the JVM those of its causes, innermost first, without stacks."""
    cause: Any = getattr(failure, "java_exception", None)
    texts: list[str] = []
    while cause is not None and len(texts) < DEEPEST:
        texts.insert(0, str(cause.toString()))
        cause = cause.getCause()
    return texts or [str(failure)]
