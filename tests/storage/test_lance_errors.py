from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from lance.commit import CommitConflictError

from omnigraph.errors import InvalidName, StorageFailure
from omnigraph.storage.failures import TableFailureKind, classify_lance_error, wrap_lance_errors
from omnigraph.storage.location import Location
from omnigraph.storage.tables import Table, Tables

PLACE = ", /build/lance/rust/lance/src/dataset.rs:774:25"


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (OSError("Too many concurrent writers. Attempted 0 retries."), TableFailureKind.CONTENTION),
        (CommitConflictError("in words that are not known yet"), TableFailureKind.CONFLICT),
        (OSError("Retryable commit conflict for version 4: it was preempted"), TableFailureKind.CONFLICT),
        (
            OSError("Ref conflict error: Branch p is referenced by [(q, 2)] versions, can not delete"),
            TableFailureKind.IN_USE,
        ),
        (OSError("Ref conflict error: p exists"), TableFailureKind.EXISTS),
        (OSError("Ambiguous merge inserts are prohibited"), TableFailureKind.DUPLICATE_KEYS),
        # The sentence says that it was not found; only its cause says whether that is so.
        (
            ValueError("Dataset at path g/t was not found: Not found: g/t/_versions"),
            TableFailureKind.NOT_FOUND,
        ),
        (
            ValueError("Dataset at path g/t was not found: status code: 404 Not Found"),
            TableFailureKind.NOT_FOUND,
        ),
        (
            ValueError("Dataset at path g/t was not found: status code: 403 Forbidden"),
            TableFailureKind.CONFIGURATION,
        ),
        (
            ValueError("Dataset at path g/t was not found: 503 Service Unavailable"),
            TableFailureKind.TRANSIENT,
        ),
        (
            ValueError("Dataset at path g/t was not found: NoSuchBucket 404 Not Found"),
            TableFailureKind.CONFIGURATION,
        ),
        (ValueError("Dataset at path g/t was not found: something else"), TableFailureKind.UNKNOWN),
        (pa.ArrowInvalid("External error: Not found: g/t/data/1.lance"), TableFailureKind.RECLAIMED),
        (OSError("Object at location g/t/data/1.lance: 404 Not Found"), TableFailureKind.RECLAIMED),
        (OSError("Generic S3 error: error sending request"), TableFailureKind.TRANSIENT),
        (OSError("No space left on device (os error 28)"), TableFailureKind.TRANSIENT),
        (OSError("LanceError(IO): Too many open files (os error 24)"), TableFailureKind.TRANSIENT),
        (OSError("Generic S3 error: HTTP error: error decoding response body"), TableFailureKind.TRANSIENT),
        (OSError("Server returned non-2xx status code: 504 Gateway Timeout"), TableFailureKind.TRANSIENT),
        (OSError("Connection reset by peer (os error 104)"), TableFailureKind.TRANSIENT),
        (OSError("Permission denied (os error 13)"), TableFailureKind.CONFIGURATION),
        (PermissionError(13, "no"), TableFailureKind.CONFIGURATION),
        (ValueError("Invalid user input: no field 'Too many concurrent writers'"), TableFailureKind.INVALID),
        (pa.ArrowInvalid("cannot cast"), TableFailureKind.INVALID),
        (RuntimeError("something new"), TableFailureKind.UNKNOWN),
    ],
)
def test_the_cause_of_an_exception_decides_its_kind(error: Exception, trouble: TableFailureKind) -> None:
    assert classify_lance_error(error) == trouble


def test_a_typed_error_names_the_table_and_not_lances_source() -> None:
    with pytest.raises(StorageFailure) as caught, wrap_lance_errors("stage_upsert", "/g/people"):
        raise OSError(f"LanceError(IO): file size is too small{PLACE}{PLACE}")
    error = caught.value
    assert error.message == "table '/g/people': stage upsert failed: LanceError(IO): file size is too small"
    assert (error.kind, error.uri) == (TableFailureKind.UNKNOWN, "/g/people")
    assert isinstance(error.__cause__, OSError)


def test_errors_that_can_be_fixed_say_how() -> None:
    with pytest.raises(StorageFailure) as caught, wrap_lance_errors("merge_rows", "/g/m"):
        raise OSError("Too many concurrent writers")
    assert caught.value.remedy == "read again and retry the write"


def test_errors_of_our_own_pass_unchanged() -> None:
    for ours in (InvalidName("x", "no"), StorageFailure("x", kind="Precondition")):
        with pytest.raises(type(ours)) as caught, wrap_lance_errors("open", "/g/m"):
            raise ours
        assert caught.value is ours


def test_ctrl_c_that_arrow_made_an_error_of_is_ctrl_c_again() -> None:
    with pytest.raises(KeyboardInterrupt), wrap_lance_errors("scan", "/g/people"):
        raise pa.ArrowInvalid("External error: KeyboardInterrupt: ")


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_while_rows_are_read_is_not_a_failure_of_the_store(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False)])
    rows = pa.table({"id": [str(number) for number in range(100_000)]}, schema=schema)
    table = Tables().create(Location.parse(tmp_path / "rows"), schema, primary_key="id", rows=rows)
    for _ in range(60):
        reading = threading.Event()
        pressed = threading.Thread(target=_press_ctrl_c, args=(reading,))
        pressed.start()
        with pytest.raises(KeyboardInterrupt):
            _read_on(table, reading)
        pressed.join()


def _read_on(table: Table, reading: threading.Event) -> None:
    reading.set()
    while True:
        table.scan()


def _press_ctrl_c(when: threading.Event) -> None:
    when.wait()
    os.kill(os.getpid(), signal.SIGINT)


def test_a_panic_of_lance_is_a_failure_like_any_other(tmp_path: Path) -> None:
    """Its class is no `Exception`: code that finishes or undoes what failed would not catch it."""
    schema = pa.schema([pa.field("id", pa.string(), nullable=False)])
    table = Tables().create(Location.parse(tmp_path / "t"), schema, primary_key="id")
    with pytest.raises(StorageFailure, match="take failed: Lance broke off: ") as broke:
        table.take([0], ["no such column"])
    assert broke.value.kind == TableFailureKind.UNKNOWN
