"""What Spark says at length is told in a line."""

from __future__ import annotations

import pytest

from omnigraph.errors import (
    BranchNotFound,
    OmnigraphError,
    PipelineCancelled,
    PipelineFailed,
    PipelineWorkerLost,
    SparkUnavailable,
)
from omnigraph.pipeline.carried import LARGEST, carried, delivered
from omnigraph.pipeline.failures import LONGEST, explanation, reason

PYTHON = """[PYTHON_EXCEPTION] Thrown from the Python worker: Traceback (most recent call last):
  File "somewhere.py", line 3, in task
KeyError: 'a'

During handling of the above exception, another exception occurred:

  File "somewhere.py", line 5, in task
package.module.StrangeError: no such thing: 7
SQLSTATE: 38000
"""
JAVA = """org.apache.spark.SparkException: Job aborted due to stage failure: no room
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2900)
Driver stacktrace:
\t... 12 more
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PYTHON, "package.module.StrangeError: no such thing: 7"),
        (JAVA, "org.apache.spark.SparkException: Job aborted due to stage failure: no room"),
        (
            "java.io.IOException: none\norg.apache.spark.SparkException: Exception thrown in awaitResult: ",
            "java.io.IOException: none",
        ),
        ("", "Spark gave no reason"),
        ("x" * (LONGEST + 1), "x" * LONGEST + " ..."),
    ],
    ids=["python", "java", "wrapped", "nothing", "too long"],
)
def test_the_line_that_counts(text: str, line: str) -> None:
    assert reason(text) == line


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SparkException: Python worker exited unexpectedly (crashed)", PipelineWorkerLost),
        ("Job 3 cancelled part of cancelled job group x", PipelineCancelled),
        ("[OPERATION_CANCELED] Operation has been canceled. SQLSTATE: HY008", PipelineCancelled),
        ("Job 0 cancelled because SparkContext was shut down", SparkUnavailable),
        ("ValueError: x", PipelineFailed),
    ],
)
def test_each_kind_of_failure_has_its_error(text: str, kind: type[OmnigraphError]) -> None:
    assert type(explanation(RuntimeError(text), "parse")) is kind


def test_a_gateway_that_is_gone_is_told_as_that() -> None:
    error = explanation(ConnectionRefusedError(111, "refused"), "parse")
    assert str(error) == "Spark went away during stage 'parse'"
    assert error.retryable


def test_an_error_in_a_text_is_found_again() -> None:
    text = f"Traceback:\n  CarriedError: {carried(BranchNotFound('work'))}\nSQLSTATE: 38000"
    found = delivered(text)
    assert type(found) is BranchNotFound
    assert found.to_json() == BranchNotFound("work").to_json()


def test_an_error_that_is_too_large_leaves_its_facts_behind() -> None:
    text = str(carried(BranchNotFound("x" * LARGEST)))
    found = delivered(text)
    assert type(found) is PipelineFailed
    assert "branch 'xxx" in str(found)


@pytest.mark.parametrize("text", ["nothing", "omnigraph-error<AAAA>", "omnigraph-error<!>"])
def test_a_text_without_an_error_gives_none(text: str) -> None:
    assert delivered(text) is None
