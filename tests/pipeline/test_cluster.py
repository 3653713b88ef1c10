"""The same tasks on a cluster whose processes one session starts; `clusters/` has a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

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
