"""The companion process of a warm server: starts the JVM, and ends it when it is idle."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import IO

from omnigraph.pipeline import start_cache
from omnigraph.pipeline.cache_files import cache_folder, write_atomically
from omnigraph.pipeline.java import find_java, launcher_home
from omnigraph.pipeline.server import HOST, Server, ServerFolder, ServerSpec
from omnigraph.pipeline.spark_settings import java_options, spark_settings, with_retries

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
GRACE_SECONDS = 20.0
LONGEST_POLL_SECONDS = 15.0
ORPHAN_SECONDS = 10
"""How long a client may be silent, and its job be without a client, before the job ends."""

_POOLS = """\
<?xml version="1.0"?>
<allocations><pool name="default"><schedulingMode>FAIR</schedulingMode></pool></allocations>
"""


class StopRequested(Exception):
    """Another process asked this one to stop."""


def main(arguments: list[str]) -> int:
    """Run one server until it ends, is idle for too long, or this process is asked to stop."""
    folder = ServerFolder(Path(arguments[0]))
    spec = ServerSpec(**json.loads(folder.wish.read_text(encoding="utf-8")))
    if spec.identity != arguments[1]:
        return 1
    signal.signal(signal.SIGTERM, _request_stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with folder.users.open("a") as users:
            return _supervise(folder, spec, users)
    finally:
        folder.wish.unlink(missing_ok=True)


def _supervise(folder: ServerFolder, spec: ServerSpec, users: IO[str]) -> int:
    jvm = _launch_jvm(folder, spec)
    try:
        os.utime(folder.users)
        folder.write(Server(**asdict(spec), keeper=os.getpid(), jvm=jvm.pid, started=time.time()))
        folder.wish.unlink(missing_ok=True)
        return _watch_jvm(folder, spec, users, jvm)
    except StopRequested:
        return 0
    finally:
        # Clients must not find a server that is shutting down.
        folder.state.unlink(missing_ok=True)
        _end_jvm(jvm)


def _watch_jvm(folder: ServerFolder, spec: ServerSpec, users: IO[str], jvm: subprocess.Popen[bytes]) -> int:
    """Wait until the JVM ends, or was idle for too long; in the latter case return with the lock held."""
    allowed = spec.idle_minutes * 60
    poll = min(LONGEST_POLL_SECONDS, max(allowed / 10, 0.05))
    used = time.monotonic()
    while True:
        try:
            return jvm.wait(timeout=poll)
        except subprocess.TimeoutExpired:
            if not _is_idle(users):
                used = time.monotonic()
                continue
        # A client that came and went between two polls updated the time of the file.
        since = min(time.monotonic() - used, time.time() - folder.users.stat().st_mtime)
        if since >= allowed:
            return 0
        fcntl.flock(users, fcntl.LOCK_UN)


def _is_idle(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _launch_jvm(folder: ServerFolder, spec: ServerSpec) -> subprocess.Popen[bytes]:
    cache_files = cache_folder()
    java = find_java()
    cache = start_cache.start_cache(java, cache_files) if start_cache.is_enabled() else None
    options = java_options(
        cache_files,
        fast_start=False,
        more=[f"-Domnigraph.server={spec.identity}", *(cache.use_options() if cache else ())],
    )
    settings = {
        **spark_settings(cache_files, master=spec.master, memory=spec.memory),
        **_list_sharing_settings(folder),
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(spec.port),
        "spark.driver.extraJavaOptions": options,
    }
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise ModuleNotFoundError("pyspark")
    submit = Path(spark.origin).parent / "bin" / "spark-submit"
    command = [str(submit), "--class", SERVER_CLASS, "--name", "omnigraph"]
    command += ["--master", with_retries(spec.master)]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = {
        **os.environ,
        "JAVA_HOME": str(launcher_home(java, cache_files)),
        "LANCE_LOG": os.environ.get("LANCE_LOG", "error"),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": spec.token,
    }
    for stray in ("SPARK_HOME", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        environment.pop(stray, None)
    # In its own folder, because Spark creates files in its working directory.
    return subprocess.Popen(
        [*command, "spark-internal"], cwd=folder.path, env=environment, stdin=subprocess.DEVNULL
    )


def _list_sharing_settings(folder: ServerFolder) -> dict[str, str]:
    """Settings for several clients: their jobs take turns, and the work of a client that died ends."""
    pools = folder.path / "pools.xml"
    write_atomically(pools, _POOLS)
    return {
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": pools.as_uri(),
        # A stream of results ends so often; a client that lives attaches to its job again at once.
        "spark.connect.execute.reattachable.senderMaxStreamDuration": f"{ORPHAN_SECONDS}s",
        "spark.connect.execute.manager.detachedTimeout": f"{ORPHAN_SECONDS}s",
        "spark.connect.execute.manager.maintenanceInterval": "2s",
    }


def _end_jvm(jvm: subprocess.Popen[bytes]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    jvm.terminate()
    try:
        jvm.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _request_stop(_number: int, _frame: FrameType | None) -> None:
    raise StopRequested


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
