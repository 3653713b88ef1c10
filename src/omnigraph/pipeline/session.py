"""The one place that makes a Spark session."""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from omnigraph.errors import MissingExtra, SparkSessionActive, SparkUnavailable
from omnigraph.pipeline import server, start_cache
from omnigraph.pipeline.connection import closed_in_time, server_host
from omnigraph.pipeline.failures import reason
from omnigraph.pipeline.java import Java, find_java, launcher_home
from omnigraph.pipeline.launching import ended_with_its_start
from omnigraph.pipeline.places import cache_folder
from omnigraph.pipeline.spark_settings import DEFAULT_MEMORY, MEMORY_SETTING, java_options, spark_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_SETTING = "OMNIGRAPH_SPARK"
LOCAL = "local[*]"
ANSWER_SECONDS = 5.0

_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"


@dataclass(frozen=True, slots=True)
class Launch:
    """A Spark to be started by this process."""

    master: str
    java: Java
    folder: Path
    memory: str = DEFAULT_MEMORY
    fast_start: bool = False
    java_options: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def session(
    master: str | None = None,
    *,
    memory: str | None = None,
    fast_start: bool = False,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The Spark session of this process: the one that is open, or a new one.

    `master` is `local[N]`, `local-cluster[...]`, `spark://host:port` or `sc://host:port`. Without one the
    setting OMNIGRAPH_SPARK decides, then a warm server on this machine, and at last this process starts a
    Spark of its own on all cores. Only for that count `memory`, `fast_start` and `settings` (Spark's names).
    """
    require_spark()
    asked = (master or os.environ.get(MASTER_SETTING) or os.environ.get("SPARK_REMOTE") or "").strip()
    if (active := _active(asked)) is not None:
        return active
    if asked.startswith("sc://"):
        return _connected(asked)
    if not asked and (warm := server.lease()) is not None:
        return _connected(warm.url)
    return _started(asked or LOCAL, memory, fast_start, settings or {})


def require_spark() -> None:
    """Say what to install when the packages of the `spark` extra are missing."""
    for package in ("pyspark", "pandas"):
        if find_spec(package) is None:
            raise MissingExtra("the data pipeline", package=package, extra="spark")


def launched(launch: Launch) -> SparkSession:
    """Start a JVM with Spark for this process."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    options = java_options(launch.folder, fast_start=launch.fast_start, more=launch.java_options)
    told = {
        **spark_settings(launch.folder, master=launch.master, memory=launch.memory),
        "spark.driver.extraJavaOptions": options,
        **launch.settings,
    }
    builder = SparkSession.builder.appName("omnigraph").master(launch.master)
    for name, value in told.items():
        builder = builder.config(name, value)
    with _launching(launch), ended_with_its_start():
        try:
            return builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as failure:
            why = f"{reason(str(failure))} (Java {launch.java.version} at {launch.java.executable})"
            raise SparkUnavailable(
                f"Spark did not start on '{launch.master}': {why}", master=launch.master
            ) from failure


def _started(master: str, memory: str | None, fast_start: bool, settings: Mapping[str, str]) -> SparkSession:
    _require_master(master)
    folder, java = cache_folder(), find_java()
    cache = start_cache.start_cache(java, folder) if start_cache.wanted() else None
    spark = launched(
        Launch(
            master=master,
            java=java,
            folder=folder,
            memory=memory or os.environ.get(MEMORY_SETTING, "").strip() or DEFAULT_MEMORY,
            fast_start=fast_start,
            java_options=cache.using() if cache else (),
            settings=settings,
        )
    )
    if cache is not None:
        start_cache.make_in_background(cache)
    return spark


def _active(asked: str) -> SparkSession | None:
    """The session that this process has, unless another one is asked for."""
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is None:
        return None
    host = server_host(found)
    place = str(found.sparkContext.master) if host is None else f"sc://{host}"
    wanted = f"sc://{urlsplit(asked).hostname}" if asked.startswith("sc://") else asked
    if wanted and wanted != place:
        raise SparkSessionActive(active=place, wanted=wanted)
    return found


def _connected(url: str) -> SparkSession:
    """A client of the server at `url`."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    shown = url.split("/;", maxsplit=1)[0]
    address = urlsplit(url)
    _require_answer(address.hostname or "", address.port or 15002, shown)
    _quiet_python()
    try:
        spark = SparkSession.builder.remote(url).getOrCreate()
        # The first question to the server: whether it knows us, and whether it is a Spark at all.
        spark.version  # noqa: B018
    except PySparkException as failure:
        raise SparkUnavailable(
            f"the Spark server at '{shown}' refused the session: {reason(str(failure))}", master=shown
        ) from failure
    return closed_in_time(spark)


def _require_master(master: str) -> None:
    """Ask the masters of a cluster for a sign of life: Spark itself would try for minutes."""
    if not master.startswith("spark://"):
        return
    places = [urlsplit(f"//{place}") for place in master.removeprefix("spark://").split(",")]
    if not any(answers(place.hostname or "", place.port or 7077) for place in places):
        raise _no_answer(master)


def _require_answer(host: str, port: int, shown: str) -> None:
    if not answers(host, port):
        raise _no_answer(shown)


def _no_answer(shown: str) -> SparkUnavailable:
    return SparkUnavailable(
        f"nothing answers at '{shown}'",
        master=shown,
        remedy=f"check the address (argument or {MASTER_SETTING}), or leave it out to use this machine",
    )


def answers(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_SECONDS):
            return True
    except OSError:
        return False


@contextmanager
def _launching(launch: Launch) -> Iterator[None]:
    """What Spark reads from the environment while it starts, put back afterwards."""
    changes = {"JAVA_HOME": str(launcher_home(launch.java, launch.folder))}
    if "PYSPARK_PYTHON" not in os.environ:
        changes["PYSPARK_PYTHON"] = sys.executable
    if launch.master.startswith("local-cluster") and "SPARK_HOME" not in os.environ:
        changes["SPARK_HOME"] = str(_spark_home(launch.folder))
    before = {name: os.environ.get(name) for name in (*changes, _CONNECT_MODE)}
    os.environ.update(changes)
    # Left behind by a Connect session that is stopped by now, and read as a wish for another.
    os.environ.pop(_CONNECT_MODE, None)
    _quiet_python()
    try:
        with warnings.catch_warnings():
            # Starting a JVM forks; the child becomes another program before it could touch Lance.
            warnings.filterwarnings("ignore", message="lance is not fork-safe")
            yield
    finally:
        for name in changes:
            _put_back(name, before[name])


def _put_back(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _quiet_python() -> None:
    os.environ.setdefault("LANCE_LOG", "error")
    # Both log every error as well that they raise, with its stack.
    for name in ("SQLQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _spark_home(folder: Path) -> Path:
    """A Spark home like the installed one: worker processes write logs beside it, and not into a package."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    home = folder / f"spark-home-{pyspark.__version__}"
    home.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "python", "sbin"):
        link = home / name
        if (installed / name).exists() and (not link.is_symlink() or link.resolve() != installed / name):
            link.unlink(missing_ok=True)
            link.symlink_to(installed / name)
    return home
