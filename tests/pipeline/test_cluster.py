"""The same tasks on other masters: a cluster in one process, and a master with two workers."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from omnigraph.pipeline.java import find_java, launcher_home
from tests.pipeline.fresh_process import run

pytestmark = pytest.mark.spark

# The first attempt at the second item fails: a cluster tries again, and no row comes twice.
FAN_OUT = """
import os, sys
from pathlib import Path
import pyarrow as pa
from omnigraph.pipeline.fan_out import fan_out
from omnigraph.pipeline.progress import watch_stage
from omnigraph.pipeline.session import session

ROWS = pa.schema([("item", pa.int64()), ("attempt", pa.int64())])

def task(item):
    from pyspark import TaskContext

    attempt = TaskContext.get().attemptNumber()
    yield pa.record_batch([[item], [attempt]], schema=ROWS)
    if item == 2 and attempt == 0:
        raise ValueError("once")

quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
settings = {"spark.executor.extraJavaOptions": quick, "spark.executor.memory": "512m"}
spark = session(sys.argv[1], fast_start=True, settings=settings)
with watch_stage(spark, "items"):
    found = fan_out(spark, [1, 2, 3, 4], task, ROWS).toArrow().sort_by("item")
answer = found.to_pydict()
if len(sys.argv) > 2:
    # Executors have no settings of this process, and find the graph by its path.
    import omnigraph as og

    with og.init(sys.argv[2], schema="node P { k: String @key  v: I32? }") as graph:
        rows = Path(sys.argv[2] + ".jsonl")
        rows.write_text("".join('{"type":"P","data":{"k":"%d"}}\\n' % at for at in range(99)))
        done = graph.load(rows, mode="append", engine="spark")
        answer["loaded"] = [done.engine.name, done.total, graph.snapshot().rows("P").num_rows]
spark.stop()
"""


def test_a_cluster_of_processes_runs_and_retries_tasks_and_loads(tmp_path: Path) -> None:
    assert run(FAN_OUT, "local-cluster[2,1,1024]", str(tmp_path / "g")) == {
        "item": [1, 2, 3, 4],
        "attempt": [0, 1, 0, 0],
        "loaded": ["spark", 99, 99],
    }


def test_a_standalone_master_with_two_workers_runs_tasks(standalone: str) -> None:
    assert run(FAN_OUT, standalone) == {"item": [1, 2, 3, 4], "attempt": [0, 1, 0, 0]}


@pytest.fixture
def standalone(cache: Path, tmp_path: Path) -> Iterator[str]:
    """The address of a master that two workers are on their way to."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {
        **os.environ,
        "JAVA_HOME": str(launcher_home(find_java(), cache)),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    master = ["Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = ["Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
    with ExitStack() as stack:
        for number, (role, *options) in enumerate([master, [*worker, address], [*worker, address]]):
            kind = f"org.apache.spark.deploy.{role.lower()}.{role}"
            folder = ["--work-dir", str(tmp_path / str(number))] if role == "Worker" else []
            process = subprocess.Popen(
                [program, kind, *folder, *options],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # The output of workers is not read, and a full pipe would stop them.
                stderr=subprocess.PIPE if role == "Master" else subprocess.DEVNULL,
                text=True,
            )
            stack.callback(_end, process)
            if role == "Master":
                _read_until(process, "elected leader")
        yield address


def _read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    output = []
    for line in process.stderr:
        output.append(line)
        if words in line:
            return
    pytest.fail("".join(output))


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate()
