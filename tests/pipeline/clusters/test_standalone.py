"""docs/clusters-spark.md on a standalone cluster: a graph in a bucket, the Python of tasks from an archive.

Workers run in folders of their own, without the Python environment of the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.pipeline.clusters.environment import make_environment
from tests.pipeline.clusters.page import blocks
from tests.pipeline.clusters.standalone import QUICK, Cluster, machine, start_cluster
from tests.storage.conftest import ask_s3, s3_server, use_s3

pytestmark = [pytest.mark.spark, pytest.mark.s3, pytest.mark.crash]

FILES, ROWS, BAD = 400, 50, 100
"""One row in a hundred is wrong."""
GOOD = FILES * ROWS * (BAD - 1) // BAD
HELD = "/input/[0-9]+00[.]jsonl"
"""One file in a hundred, which is one for each task: a task reads several at once."""
READY = "Spark Connect server started"
TORTURE = bool(os.environ.get("OMNIGRAPH_TORTURE"))


@pytest.fixture(scope="module")
def cluster(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster, and a driver with what the page packs."""
    folder = tmp_path_factory.mktemp("cluster")
    driver = folder / "driver"
    driver.mkdir()
    make_environment(driver / "environment")
    pack(driver)
    (application,) = blocks("The application")
    (driver / "omnigraph_app.py").write_text(application)
    events = driver / "events"
    events.mkdir()
    with pytest.MonkeyPatch.context() as patch, s3_server() as endpoint:
        patch.setenv("OMNIGRAPH_JAVA", "bundled")
        bucket = use_s3(endpoint, patch).bucket
        environment = machine(cache)
        # The credentials of the bucket, as each machine has them.
        environment |= {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        # The page leaves these to the user: a quick start of JVMs, and a log of what happens.
        (driver / "conf").mkdir()
        (driver / "conf" / "spark-defaults.conf").write_text(
            f"spark.executor.extraJavaOptions {QUICK}\n"
            f"spark.eventLog.enabled true\nspark.eventLog.dir {events.as_uri()}\n"
            "spark.eventLog.compress false\n"
            "spark.ui.enabled false\n"
        )
        environment |= {"BUCKET": bucket, "SPARK_CONF_DIR": str(driver / "conf")}
        environment["PATH"] = f"{driver / 'environment' / 'bin'}:{environment['PATH']}"
        with start_cluster(folder, environment) as found:
            yield found


def pack(driver: Path) -> None:
    """Pack the environment by the command of the page; compressing it takes half a minute."""
    if TORTURE:
        _, command = blocks("Pack the Python environment")
        subprocess.run(["bash", "-c", command], cwd=driver, check=True)
        return
    with tarfile.open(driver / "environment.tar.gz", "w:gz", compresslevel=0) as archive:
        archive.add(driver / "environment", arcname=".")


def test_a_load_survives_a_killed_executor_and_a_killed_worker(cluster: Cluster, tmp_path: Path) -> None:
    uri = f"s3://{cluster.environment['BUCKET']}/graph"
    og.init(uri, schema="node Person { slug: String @key  age: I32?  }").close()
    fill_input(cluster, tmp_path)
    ask_s3("hold", paths=HELD)
    finish = cluster.submit("Load")
    # Each worker has one core: both wait in a task.
    assert ask_s3("held", count="2") == 2
    ask_s3("hold", paths=HELD)
    cluster.kill_executor(0)
    # Its successor waits in a task.
    assert ask_s3("held", count="1") >= 1
    cluster.workers[1].kill()
    ask_s3("release")
    done = finish()
    assert done["total_entities"] == GOOD
    assert done["skipped_counts"] == {"value": FILES * ROWS // BAD}
    assert done["engine"]["why"] == "spark-submit started this process"
    rejects = [json.loads(line) for line in (cluster.folder / "rejects.jsonl").read_text().splitlines()]
    assert len(rejects) == FILES * ROWS // BAD
    with og.open(uri) as graph:
        people = graph.snapshot(branch="incoming").rows("Person", columns=["slug"])
        assert len(set(people["slug"].to_pylist())) == people.num_rows == GOOD
        assert graph.snapshot().rows("Person").num_rows == 0
    events = read_events(cluster)
    lost = [event["Task End Reason"]["Reason"] for event in events["SparkListenerTaskEnd"]]
    assert Counter(lost)["ExecutorLostFailure"] >= 2
    assert len(events["SparkListenerExecutorRemoved"]) >= 2


def test_a_pipeline_runs_on_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    uri = f"s3://{cluster.environment['BUCKET']}/crm"
    og.init(uri, schema="node Person { slug: String @key  age: I32?  }").close()
    # Tasks of Spark's own read it: a folder that each machine has under the same path.
    (tmp_path / "people.csv").write_text("slug,age\na,1\nb,2\n")
    source = f"{{format: csv, path: {tmp_path / 'people.csv'}, options: {{header: 'true'}}}}"
    nodes = "[{type: Person, view: older, properties: {slug: slug, age: age}}]"
    (cluster.folder / "crm.yaml").write_text(
        "pipelines:\n  crm:\n"
        f"    sources: {{people: {source}}}\n"
        "    transforms: [{view: older, query: 'select slug, cast(age as int) + 1 as age from people'}]\n"
        f"    into: [{{graph: '{uri}', mode: merge, map: {{nodes: {nodes}}}}}]\n"
    )
    done = cluster.submit("Run a pipeline")()
    assert done["status"] == "succeeded"
    with og.open(uri) as graph:
        rows = graph.snapshot().rows("Person", columns=["slug", "age"]).sort_by("slug").to_pylist()
    assert rows == [{"slug": "a", "age": 2}, {"slug": "b", "age": 3}]


@pytest.mark.skipif(
    not TORTURE, reason="starts a server on the cluster twice, over a minute; in `make torture`"
)
def test_a_load_whose_connect_server_is_killed_changes_nothing_and_runs_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    client = in_own_prefix(cluster, "connected")
    uri = f"s3://{client.environment['BUCKET']}/graph"
    og.init(uri, schema="node Person { slug: String @key  age: I32?  }").close()
    fill_input(client, tmp_path)
    ask_s3("hold", paths=HELD)
    with client.serve("Keep Spark running", READY) as server:
        finish = client.submit("Keep Spark running", 1)
        assert ask_s3("held", count="1") >= 1
        server.kill()
        ask_s3("release")
        failed = finish(failed=True)
    assert (failed["code"], failed["retryable"]) == ("spark_unavailable", True)
    with og.open(uri) as graph:
        assert list(graph.branches) == ["main"]
        assert len(graph.commits.list()) == 1
    with client.serve("Keep Spark running", READY):
        done = client.submit("Keep Spark running", 1)()
    assert (done["total_entities"], done["engine"]["name"]) == (GOOD, "spark")
    with og.open(uri) as graph:
        assert graph.snapshot(branch="connected").rows("Person").num_rows == GOOD


def in_own_prefix(cluster: Cluster, name: str) -> Cluster:
    """The cluster for a client with a part of the bucket for itself, and with the code of these tests."""
    changes = {
        "BUCKET": f"{cluster.environment['BUCKET']}/{name}",
        "PATH": f"{cluster.environment['PATH']}:{Path(sys.executable).parent}",
        "PYTHONPATH": str(Path(og.__file__).parents[1]),
    }
    return replace(cluster, environment={**cluster.environment, **changes})


def fill_input(cluster: Cluster, folder: Path) -> None:
    """Many small files: more tasks than cores, with a hundred files each."""
    for number in range(FILES):
        rows = range(number * ROWS, (number + 1) * ROWS)
        lines = [
            json.dumps({"type": "Person", "data": {"slug": f"p{row}", "age": "x" if row % BAD == 7 else row}})
            for row in rows
        ]
        (folder / f"{number:04}.jsonl").write_text("\n".join(lines) + "\n")
    bucket, _, prefix = cluster.environment["BUCKET"].partition("/")
    ask_s3("fill", folder=str(folder), bucket=bucket, prefix=f"{prefix}/input".lstrip("/"))


def read_events(cluster: Cluster) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for file in (cluster.folder / "events").glob("*/events_*"):
        for line in file.read_text().splitlines():
            event = json.loads(line)
            found.setdefault(event["Event"], []).append(event)
    return found
