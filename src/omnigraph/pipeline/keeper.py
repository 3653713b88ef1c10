"""The process beside a warm server: starts the JVM, and ends it when nobody uses it."""

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
from omnigraph.pipeline.java import find_java, launcher_home
from omnigraph.pipeline.places import cache_folder
from omnigraph.pipeline.server import HOST, Server, ServerFolder, Wish
from omnigraph.pipeline.spark_settings import java_options, spark_settings

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
GRACE_SECONDS = 20.0
LONGEST_LOOK_SECONDS = 15.0


class Asked(Exception):
    """Somebody wants the server to end."""


def main(arguments: list[str]) -> int:
    """Keep one server until it ends, is idle for too long, or this process is told to end."""
    folder = ServerFolder(Path(arguments[0]))
    wish = Wish(**json.loads(folder.wish.read_text(encoding="utf-8")))
    if wish.identity != arguments[1]:
        return 1
    signal.signal(signal.SIGTERM, _asked)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with folder.users.open("a") as users:
            return _keep(folder, wish, users)
    finally:
        folder.wish.unlink(missing_ok=True)


def _keep(folder: ServerFolder, wish: Wish, users: IO[str]) -> int:
    jvm = _launch(folder, wish)
    try:
        os.utime(folder.users)
        folder.write(Server(**asdict(wish), keeper=os.getpid(), jvm=jvm.pid, started=time.time()))
        folder.wish.unlink(missing_ok=True)
        return _watch(folder, wish, users, jvm)
    except Asked:
        return 0
    finally:
        # Nobody is to find a server that is about to go.
        folder.state.unlink(missing_ok=True)
        _end(jvm)


def _watch(folder: ServerFolder, wish: Wish, users: IO[str], jvm: subprocess.Popen[bytes]) -> int:
    """Wait until the JVM ends or has had no client for so long; in the latter case with the lock in hand."""
    allowed = wish.idle_minutes * 60
    look = min(LONGEST_LOOK_SECONDS, max(allowed / 10, 0.05))
    used = time.monotonic()
    while True:
        try:
            return jvm.wait(timeout=look)
        except subprocess.TimeoutExpired:
            if not _alone(users):
                used = time.monotonic()
                continue
        # A client that came and went between two looks left its mark on the file.
        since = min(time.monotonic() - used, time.time() - folder.users.stat().st_mtime)
        if since >= allowed:
            return 0
        fcntl.flock(users, fcntl.LOCK_UN)


def _alone(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _launch(folder: ServerFolder, wish: Wish) -> subprocess.Popen[bytes]:
    cache_files = cache_folder()
    java = find_java()
    cache = start_cache.start_cache(java, cache_files) if start_cache.wanted() else None
    options = java_options(
        cache_files,
        fast_start=False,
        more=[f"-Domnigraph.server={wish.identity}", *(cache.using() if cache else ())],
    )
    settings = {
        **spark_settings(cache_files, master=wish.master, memory=wish.memory),
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(wish.port),
        "spark.driver.extraJavaOptions": options,
    }
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise ModuleNotFoundError("pyspark")
    submit = Path(spark.origin).parent / "bin" / "spark-submit"
    command = [str(submit), "--class", SERVER_CLASS, "--name", "omnigraph", "--master", wish.master]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = {
        **os.environ,
        "JAVA_HOME": str(launcher_home(java, cache_files)),
        "LANCE_LOG": os.environ.get("LANCE_LOG", "error"),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_CONNECT_AUTHENTICATE_TOKEN": wish.token,
    }
    for stray in ("SPARK_HOME", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        environment.pop(stray, None)
    # In its own folder, because Spark makes files where it is started.
    return subprocess.Popen(
        [*command, "spark-internal"], cwd=folder.path, env=environment, stdin=subprocess.DEVNULL
    )


def _end(jvm: subprocess.Popen[bytes]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    jvm.terminate()
    try:
        jvm.wait(timeout=GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


def _asked(_number: int, _frame: FrameType | None) -> None:
    raise Asked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
