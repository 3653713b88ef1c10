"""Finds or starts the Spark session of this process, and kills the JVM of a start that fails.

PySpark waits for a file in which the JVM writes its port, and removes the folder of that file afterwards.
Interrupted meanwhile it forgets the JVM, which then is unreachable and never ends.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import MissingExtra, SparkSessionActive, SparkUnavailable
from omnigraph.pipeline import server, start_cache
from omnigraph.pipeline.cache_files import cache_folder
from omnigraph.pipeline.connection import (
    CONNECT_PORT,
    close_before_exit,
    limit_retries,
    parse_address,
    server_address,
)
from omnigraph.pipeline.failures import failure_reason, start_failure
from omnigraph.pipeline.java import Java, find_java, launcher_home
from omnigraph.pipeline.spark_settings import (
    CLUSTER_SETTINGS,
    DEFAULT_MEMORY,
    MEMORY_SETTING,
    is_submitted,
    java_options,
    spark_settings,
    submitted_settings,
    with_retries,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


import subprocess
from typing import Any

from omnigraph.ctrl_c import postpone_ctrl_c


@contextmanager
def kill_jvm_on_failure() -> Iterator[None]:
    """Start Spark in this block; if that fails or is interrupted, kill its JVM."""
    from pyspark import SparkContext, java_gateway

    begun: list[subprocess.Popen[Any]] = []

    def start_process(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        with postpone_ctrl_c():  # otherwise it could run without being in the list
            begun.append(subprocess.Popen(*arguments, **options))
        return begun[-1]

    launcher: Any = java_gateway
    launcher.Popen = start_process
    try:
        yield
    except BaseException:
        for process in begun:
            process.kill()
            process.communicate()
        if begun:
            # The next session must start a new JVM instead of using this one.
            context: Any = SparkContext
            context._gateway = context._jvm = context._active_spark_context = None  # noqa: SLF001
        raise
    finally:
        launcher.Popen = subprocess.Popen


MASTER_SETTING = "OMNIGRAPH_SPARK"
LOCAL = "local[*]"
ANSWER_SECONDS = 5.0

_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"


@dataclass(frozen=True, slots=True)
class Launch:
    """How this process starts Spark."""

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
    """Return the Spark session of this process: the active one, or a new one.

    `master` is `local[N]`, `local-cluster[...]`, `spark://host:port` or `sc://host:port`. Without one
    `spark-submit` decides, if it started this process, then the setting OMNIGRAPH_SPARK, then a warm server
    on this machine, and finally this process starts Spark on all cores. `memory`, `fast_start` and `settings`
    (Spark's names) apply only to the latter; what `spark-submit` was called with has precedence.
    """
    require_spark()
    asked = (master or os.environ.get(MASTER_SETTING) or os.environ.get("SPARK_REMOTE") or "").strip()
    if is_submitted():
        return _active_session("") or _submitted_session(master, settings or {})
    if (active := _active_session(asked)) is not None:
        return active
    if asked.startswith("sc://"):
        return _connect_client(asked)
    if not asked and (warm := server.lease()) is not None:
        return _connect_client(warm.url)
    return _start_session(asked or LOCAL, memory, fast_start, settings or {})


def has_session() -> bool:
    """Whether this process has a session already; asking does not import Spark."""
    if "pyspark.sql" not in sys.modules:
        return False
    return _active_session("") is not None


def require_spark() -> None:
    """Fail with what to install if the packages of the `spark` extra are missing."""
    for package in ("pyspark", "pandas"):
        if find_spec(package) is None:
            raise MissingExtra("the data pipeline", package=package, extra="spark")


def launch_session(launch: Launch) -> SparkSession:
    """Start a JVM with Spark for this process."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    options = java_options(launch.folder, fast_start=launch.fast_start, more=launch.java_options)
    configuration = {
        **spark_settings(launch.folder, master=launch.master, memory=launch.memory),
        "spark.driver.extraJavaOptions": options,
        **launch.settings,
    }
    builder = SparkSession.builder.appName("omnigraph").master(launch.master)
    for name, value in configuration.items():
        builder = builder.config(name, value)
    with _launch_environment(launch), kill_jvm_on_failure():
        try:
            return builder.getOrCreate()
        except (PySparkException, Py4JError, OSError) as failure:
            why = f"{start_failure(failure)} (Java {launch.java.version} at {launch.java.executable})"
            raise SparkUnavailable(
                f"Spark did not start on '{launch.master}': {why}", master=launch.master
            ) from failure


def _submitted_session(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    """Return a session in the JVM that `spark-submit` has started for this process."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    given = submitted_settings()
    builder = SparkSession.builder
    for name, value in {**CLUSTER_SETTINGS, **settings}.items():
        if name not in given:
            builder = builder.config(name, value)
    if master:
        builder = builder.master(with_retries(master))
    _quiet_python()
    try:
        return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as failure:
        shown = master or given.get("spark.master", LOCAL)
        why = start_failure(failure)
        raise SparkUnavailable(f"Spark did not start on '{shown}': {why}", master=shown) from failure


def _start_session(
    master: str, memory: str | None, fast_start: bool, settings: Mapping[str, str]
) -> SparkSession:
    _require_master(master)
    master = with_retries(master)
    folder, java = cache_folder(), find_java()
    cache = start_cache.start_cache(java, folder) if start_cache.is_enabled() else None
    spark = launch_session(
        Launch(
            master=master,
            java=java,
            folder=folder,
            memory=memory or os.environ.get(MEMORY_SETTING, "").strip() or DEFAULT_MEMORY,
            fast_start=fast_start,
            java_options=cache.use_options() if cache else (),
            settings=settings,
        )
    )
    if cache is not None:
        start_cache.make_in_background(cache)
    return spark


def _active_session(asked: str) -> SparkSession | None:
    """Return the session that this process has; fail if another master is requested."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        # Also that of another thread, which a new session of this thread would be.
        found = SparkSession.active()
    except PySparkRuntimeError:
        return None
    active = server_address(found) or str(found.sparkContext.master)
    wanted = parse_address(asked) if asked.startswith("sc://") else with_retries(asked)
    if asked and wanted != active:
        raise SparkSessionActive(active=active, wanted=wanted)
    return found


def _connect_client(url: str) -> SparkSession:
    """Return a client of the server at `url`."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    shown = url.split("/;", maxsplit=1)[0]
    address = urlsplit(url)
    _require_answer(address.hostname or "", address.port or CONNECT_PORT, shown)
    _quiet_python()
    try:
        spark = SparkSession.builder.remote(url).getOrCreate()
        # The first request: it fails if the server rejects us, or is not Spark at all.
        spark.version  # noqa: B018
    except PySparkException as failure:
        raise SparkUnavailable(
            f"the Spark server at '{shown}' refused the session: {failure_reason(str(failure))}", master=shown
        ) from failure
    limit_retries(spark)
    return close_before_exit(spark)


def _require_master(master: str) -> None:
    """Check that a master of the cluster accepts connections: Spark itself would retry for minutes."""
    if not master.startswith("spark://"):
        return
    places = [urlsplit(f"//{place}") for place in master.removeprefix("spark://").split(",")]
    if not any(accepts_connections(place.hostname or "", place.port or 7077) for place in places):
        raise _no_answer(master)


def _require_answer(host: str, port: int, shown: str) -> None:
    if not accepts_connections(host, port):
        raise _no_answer(shown)


def _no_answer(shown: str) -> SparkUnavailable:
    return SparkUnavailable(
        f"nothing answers at '{shown}'",
        master=shown,
        remedy=f"check the address (argument or {MASTER_SETTING}), or leave it out to use this machine",
    )


def accepts_connections(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=ANSWER_SECONDS):
            return True
    except OSError:
        return False


@contextmanager
def _launch_environment(launch: Launch) -> Iterator[None]:
    """Set the environment that Spark reads while it starts, and restore it afterwards."""
    changes = {"JAVA_HOME": str(launcher_home(launch.java, launch.folder))}
    if "PYSPARK_PYTHON" not in os.environ:
        changes["PYSPARK_PYTHON"] = sys.executable
    if launch.master.startswith("local-cluster") and "SPARK_HOME" not in os.environ:
        changes["SPARK_HOME"] = str(_spark_home(launch.folder))
    before = {name: os.environ.get(name) for name in (*changes, _CONNECT_MODE)}
    os.environ.update(changes)
    # A stopped Connect session leaves this behind, and Spark would start another one.
    os.environ.pop(_CONNECT_MODE, None)
    _quiet_python()
    try:
        with warnings.catch_warnings():
            # Starting a JVM forks; the child executes another program before it could touch Lance.
            warnings.filterwarnings("ignore", message="lance is not fork-safe")
            yield
    finally:
        for name in changes:
            _restore_variable(name, before[name])


def _restore_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _quiet_python() -> None:
    os.environ.setdefault("LANCE_LOG", "error")
    # Both also log every error that they raise, with its stack.
    for name in ("SQLQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _spark_home(folder: Path) -> Path:
    """Return a copy of the installed Spark home by links, so that workers write no logs into the package."""
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
