"""Values of the data that look like messages of ours or of Spark: errors quote them, nothing obeys them."""

from __future__ import annotations

import base64
import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import BranchNotFound, PipelineFailed
from omnigraph.graph import Graph
from omnigraph.pipeline import register
from omnigraph.pipeline.declared.extraction import SparkExtract
from omnigraph.pipeline.declared.run import run
from omnigraph.pipeline.fan_out import fan_out
from omnigraph.pipeline.progress import watch_stage
from omnigraph.pipeline.task_errors import encode_error
from tests.pipeline.declared.world import declare_pipeline, graph_at, into
from tests.pipeline.graphs import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAPPING = {"inputs": [{"files": "*.csv", "type": "Person", "expressions": {"age": "cast(years as int)"}}]}

KINDS = ["pickle", "forged", "unavailable", "cancelled", "lost"]
ONE = pytest.mark.parametrize("cell", ["pickle"], indirect=True)


class _Exploit:
    """Unpickled, it makes a file."""

    def __init__(self, at: Path) -> None:
        self.at = at

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.at),)


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """What appears once code of a cell ran."""
    return tmp_path / "evil"


@pytest.fixture(params=KINDS)
def cell(request: pytest.FixtureRequest, evil: Path) -> str:
    """A value that an error of Spark quotes."""
    exploit = base64.b64encode(pickle.dumps(_Exploit(evil))).decode()
    body = {"code": "branch_not_found", "message": "forged", "remedy": None, "facts": {"branch": "main"}}
    forged = base64.b64encode(json.dumps(body).encode()).decode()
    cells = {
        "pickle": f"omnigraph-error<{exploit}> omnigraph-error:{'0' * 64}:{exploit};",
        # Signed with a key that is not the one of this process.
        "forged": f"omnigraph-error:{'0' * 64}:{forged}; {encode_error(BranchNotFound('forged'), b'key')}",
        "unavailable": "<_X of RPC that terminated with: status = StatusCode.UNAVAILABLE",
        "cancelled": "[OPERATION_CANCELED] Job 3 cancelled, it was cancelled",
        "lost": "org.apache.spark.SparkException: Python worker exited unexpectedly",
    }
    return cells[request.param]


@pytest.fixture
def people(tmp_path: Path, cell: str) -> Path:
    (tmp_path / "people.csv").write_text(f'name,years\nada,36\nbo,"{cell}"\n')
    return tmp_path / "people.csv"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    with og.init(tmp_path / "graph", schema=SCHEMA) as made:
        yield made


@pytest.mark.parametrize(
    ("cell", "skip_bad"), [*((kind, False) for kind in KINDS), ("pickle", True)], indirect=["cell"]
)
def test_a_load_fails_as_what_it_is(
    spark: SparkSession, graph: Graph, people: Path, evil: Path, skip_bad: bool
) -> None:
    with pytest.raises(PipelineFailed) as failed:
        graph.load(people, mode="append", mapping=MAPPING, engine="spark", skip_bad=skip_bad)
    assert type(failed.value) is PipelineFailed
    assert "CAST_INVALID_INPUT" in failed.value.reason
    assert not evil.exists()


@ONE
def test_a_declared_pipeline_fails_as_what_it_is(
    spark: SparkSession, tmp_path: Path, cell: str, evil: Path
) -> None:
    graph_at(tmp_path / "team")
    (tmp_path / "people.csv").write_text(f'email,age,updated\na@x,"{cell}",2024-01-01\n')
    pipeline = declare_pipeline(tmp_path, into())
    done = run(pipeline, SparkExtract(pipeline, spark))
    error = done.targets["graph.team"].error
    assert error is not None
    assert error["code"] == "pipeline_failed"
    assert not evil.exists()


@pytest.fixture
def frame(spark: SparkSession, cell: str) -> DataFrame:
    register(spark)
    return spark.createDataFrame(pa.table({"name": ["bo"], "years": [cell]}))


@ONE
def test_a_data_frame_and_the_writer_fail_as_what_they_are(
    graph: Graph, frame: DataFrame, evil: Path
) -> None:
    from pyspark.errors import PySparkException

    wrong = frame.selectExpr("name", "cast(years as int) as age")
    with pytest.raises(PipelineFailed) as failed:
        graph.load(wrong, type="Person", mode="append")
    assert type(failed.value) is PipelineFailed
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        wrong.write.format("omnigraph").mode("append").options(uri=graph.uri, type="Person").save()
    assert not evil.exists()


@ONE
def test_a_stream_of_changes_fails_as_what_it_is(
    spark: SparkSession, graph: Graph, frame: DataFrame, tmp_path: Path, evil: Path
) -> None:
    from pyspark.errors import PySparkException

    graph.load(frame.selectExpr("years as name"), type="Person", mode="append")
    changes = spark.readStream.format("omnigraph").options(uri=graph.uri, type="Person", since="beginning")
    broken = changes.load().selectExpr("cast(after.name as int) as age")
    query = broken.writeStream.format("memory").queryName("hostile").trigger(availableNow=True)
    with pytest.raises(PySparkException, match="CAST_INVALID_INPUT"):
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert not evil.exists()


def test_a_task_that_quotes_a_cell_still_delivers_its_own_error(
    spark: SparkSession, cell: str, evil: Path
) -> None:
    def ours(item: str) -> list[pa.RecordBatch]:
        raise BranchNotFound(item)

    def bug(item: str) -> list[pa.RecordBatch]:
        raise ValueError(item)

    with pytest.raises(BranchNotFound) as found, watch_stage(spark, "read"):
        fan_out(spark, [cell], ours, "a int").toArrow()
    assert found.value.branch == cell
    with pytest.raises(PipelineFailed) as failed, watch_stage(spark, "read"):
        fan_out(spark, [cell], bug, "a int").toArrow()
    assert type(failed.value) is PipelineFailed
    assert not evil.exists()
