"""What can go wrong with the data pipeline: its Java, its session, its jobs."""

from __future__ import annotations

from omnigraph.errors.base import OmnigraphError
from omnigraph.errors.internal import InternalError
from omnigraph.errors.request import BadRequest
from omnigraph.errors.unavailable import Unavailable


class JavaNotFound(BadRequest):
    """Spark needs a Java that this machine does not have, or has only in an old version."""

    code = "java_not_found"

    def __init__(self, message: str, *, needed: int) -> None:
        super().__init__(
            message,
            remedy=f"install Java {needed} or newer, or take the bundled one: pip install 'omnigraph[spark]'",
        )
        self.needed = needed


class SparkSessionActive(BadRequest):
    """This process has a Spark session on another master; there can be one at a time."""

    code = "spark_session_active"

    def __init__(self, *, active: str, wanted: str) -> None:
        super().__init__(
            f"this process has a Spark session on '{active}', so it cannot open one on '{wanted}'",
            remedy="stop the session first, or leave the master out to use it",
        )
        self.active = active
        self.wanted = wanted


class PipelineCancelled(OmnigraphError):
    """A job of the data pipeline was stopped before it was done."""

    code = "pipeline_cancelled"
    status = 408

    def __init__(self, stage: str) -> None:
        super().__init__(f"stage '{stage}' was cancelled")
        self.stage = stage


class SparkUnavailable(Unavailable):
    """Spark did not start, or its master or server does not answer."""

    code = "spark_unavailable"

    def __init__(self, message: str, *, master: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy or "see `omnigraph spark doctor`")
        self.master = master


class PipelineFailed(InternalError):
    """A task of the data pipeline failed; `reason` is its own message."""

    code = "pipeline_failed"

    def __init__(self, stage: str, reason: str, *, remedy: str | None = None) -> None:
        super().__init__(f"stage '{stage}' failed: {reason}", remedy=remedy)
        self.stage = stage
        self.reason = reason


class PipelineWorkerLost(PipelineFailed):
    """A worker of the data pipeline died, most often because the machine ran out of memory."""

    code = "pipeline_worker_lost"
    retryable = True

    def __init__(self, stage: str) -> None:
        super().__init__(
            stage,
            "a worker process died before its task was done",
            remedy="give the machine more memory, or run fewer tasks at a time with a master like 'local[1]'",
        )
