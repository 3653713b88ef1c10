"""One Spark session for all tests of the pipeline, and a cache folder of their own."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from omnigraph.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
MASTER = os.environ.get("OMNIGRAPH_TEST_SPARK_MASTER", "local[2,1]")
"""Tests of failures need not see each of them four times; `make torture` has more tasks at a time."""
PARTITIONS = os.environ.get("OMNIGRAPH_TEST_SPARK_PARTITIONS")
"""How many partitions every shuffle has, and keeps; if not set, few, which Spark joins if they are small."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever uses the session carries the marker of that, before anybody selects by markers."""
    for item in items:
        if HERE in item.path.parents and "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where launchers and servers of the tests live."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def settings(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the machine: the bundled Java, no start-up cache, no warm server, no master from outside."""
    _set(monkeypatch, cache)


@pytest.fixture(scope="session")
def spark(cache: Path) -> Iterator[SparkSession]:
    """A session on two cores with the bundled Java, also where the machine has one."""
    with pytest.MonkeyPatch.context() as patch:
        _set(patch, cache)
        patch.setenv("PYSPARK_PYTHON", str(_worker_python(cache)))
        settings = {
            **spread(PARTITIONS or "2"),
            "spark.python.daemon.module": "tests.pipeline.preloaded",
        }
        found = session(MASTER, fast_start=True, settings=settings)
    yield found
    found.stop()


def spread(partitions: str) -> dict[str, str]:
    """Settings for so many partitions; Spark leaves them apart if they are more than usual."""
    joined = "true" if PARTITIONS is None and int(partitions) <= 2 else "false"
    return {
        "spark.sql.shuffle.partitions": partitions,
        "spark.sql.adaptive.coalescePartitions.enabled": joined,
    }


def _worker_python(folder: Path) -> Path:
    """A Python for Spark's workers that imports pyspark from its folder, where it is compiled.

    Spark puts a zip file of it first, which each process compiles again: a second of CPU time. On a machine
    that is busy this can take longer than the ten seconds that Spark gives a process to connect. No setting
    changes that limit, and those that plan a read or ask a stream for its offsets are started, not forked.
    """
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    packages = Path(found.origin).parents[1]
    path = folder / "python"
    path.write_text(
        "#!/bin/sh\n"
        f'PYTHONPATH={shlex.quote(str(packages))}:"$PYTHONPATH" exec {shlex.quote(sys.executable)} "$@"\n'
    )
    path.chmod(0o755)
    return path


def _set(patch: pytest.MonkeyPatch, cache: Path) -> None:
    patch.setenv("OMNIGRAPH_CACHE_DIR", str(cache))
    patch.setenv("OMNIGRAPH_JAVA", "bundled")
    patch.setenv("OMNIGRAPH_SPARK_START_CACHE", "off")
    for name in ("OMNIGRAPH_SPARK", "OMNIGRAPH_SPARK_MEMORY", "SPARK_HOME", "SPARK_REMOTE"):
        patch.delenv(name, raising=False)
