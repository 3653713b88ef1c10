"""What Spark says at length is reported in a line."""

from __future__ import annotations

from collections import Counter

import pytest

from omnigraph.engine.rows.violations import Violation
from omnigraph.errors import (
    BranchNotFound,
    InternalError,
    LoadRejected,
    OmnigraphError,
    PipelineCancelled,
    PipelineFailed,
    PipelineInvalid,
    PipelineWorkerLost,
    SourceSecretInline,
    SparkUnavailable,
    StorageFailure,
)
from omnigraph.pipeline.failures import LONGEST, failure_reason, translate_failure
from omnigraph.pipeline.task_errors import LARGEST, decode_error, encode_error, error_key
from omnigraph.storage.failures import FailureKind
from tests.test_errors import SAMPLES

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
    assert failure_reason(text) == line


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
    assert type(translate_failure(RuntimeError(text), "parse")) is kind


def test_a_gateway_that_is_gone_is_reported_in_one_line() -> None:
    error = translate_failure(ConnectionRefusedError(111, "refused"), "parse")
    assert str(error) == "Spark went away during stage 'parse'"
    assert error.retryable


VIOLATION = Violation("a.csv", 3, "node:Person 'ada'", "bad", row_group=2)


@pytest.mark.parametrize(
    "error",
    [
        *SAMPLES,
        LoadRejected([VIOLATION], total=7, counts=Counter(endpoint=7), remedy="fix it"),
        PipelineInvalid.of([PipelineInvalid("one", file="a.yaml", line=2), SourceSecretInline("two")]),
        StorageFailure("slow", kind=FailureKind.NOT_FOUND, uri="s3://b"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_in_a_text_is_found_again(error: OmnigraphError) -> None:
    text = f"Traceback:\n  CarriedError: {encode_error(error, error_key())}\nSQLSTATE: 38000"
    found = decode_error(text)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert found.to_json() == error.to_json()
    assert {
        name: type(value) for name, value in vars(found).items() if not isinstance(value, str | dict)
    } == {name: type(value) for name, value in vars(error).items() if not isinstance(value, str | dict)}


def test_an_error_without_a_class_of_its_own_is_internal() -> None:
    found = decode_error(str(encode_error(OmnigraphError("odd"), error_key())))
    assert (type(found), str(found)) == (InternalError, "odd")


def test_an_error_that_is_too_large_leaves_its_facts_behind() -> None:
    found = decode_error(str(encode_error(BranchNotFound("x" * LARGEST), error_key())))
    assert type(found) is PipelineFailed
    assert "branch 'xxx" in str(found)


def test_no_text_gives_an_error_that_was_not_signed_by_this_process() -> None:
    text = str(encode_error(BranchNotFound("work"), error_key()))
    assert decode_error(text) is not None
    signature = text.index("omnigraph-error:") + len("omnigraph-error:")
    other = "1" if text[signature] == "0" else "0"
    assert decode_error(text[:signature] + other + text[signature + 1 :]) is None
    assert decode_error(str(encode_error(BranchNotFound("work"), b"another key"))) is None
    # Whatever comes before it in the text does not hide the one that is signed.
    assert type(decode_error(f"omnigraph-error:{'0' * 64}:AAAA; {text}")) is BranchNotFound


@pytest.mark.parametrize("text", ["nothing", "omnigraph-error<AAAA>", f"omnigraph-error:{'0' * 64}:AAAA;"])
def test_a_text_without_an_error_gives_none(text: str) -> None:
    assert decode_error(text) is None
