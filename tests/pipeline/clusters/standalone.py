"""A standalone cluster as docs/clusters-spark.md starts it: a master and two workers, each in its folder."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

import pytest

from omnigraph.pipeline.java import find_java, launcher_home
from tests.pipeline.clusters.page import blocks

SECONDS = 900
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
KEPT = ("HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "TMPDIR")
"""What machines of a cluster have of this one: no path of Python, no setting of omnigraph, no bucket."""


class Daemon:
    """A process that runs until it is ended, and whose log can be waited for."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        # `exec`, so that a kill reaches the JVM and not a shell; a session, to end all that it starts.
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stderr is not None
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        # A full pipe would stop it.
        self._reader = threading.Thread(target=self._drain, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    def _drain(self, log: IO[str]) -> None:
        with log:
            for line in log:
                self._lines.put(line)
        self._lines.put(None)

    def wait_for(self, words: str) -> None:
        """Wait until it logs a line with these words."""
        seen = []
        while (line := self._lines.get()) is not None:
            if words in line:
                return
            seen.append(line)
        pytest.fail(f"it ended before '{words}':\n{''.join(seen)}")

    def kill(self) -> None:
        """Kill this process, and nothing that it has started."""
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Kill this process with all that it has started."""
        _end_group(self.process)
        self._reader.join()


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    folder: Path
    """Of the driver: the packed environment and the application are there."""
    environment: Mapping[str, str]
    workers: tuple[Daemon, ...]
    running: ExitStack

    def submit(self, section: str, number: int = 0) -> Callable[..., Any]:
        """Run a command of a section of the page at the driver; returns how to get its result."""
        log = (self.folder / f"{section} {number}.log").open("w+")
        process = subprocess.Popen(
            ["bash", "-c", blocks(section)[number]],
            cwd=self.folder,
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        self.running.enter_context(log)
        self.running.enter_context(process)
        self.running.callback(_end_group, process)

        def finish(*, failed: bool = False) -> Any:
            with log, process:
                printed, _ = process.communicate(timeout=SECONDS)
                log.seek(0)
                logged = log.read()
            assert (process.returncode != 0) == failed, f"{printed[-2000:]}\n{logged[-5000:]}"
            # A failure is on the last line. Remarks for people follow a result.
            return json.JSONDecoder().raw_decode(logged.splitlines()[-1] if failed else printed)[0]

        return finish

    @contextmanager
    def serve(self, section: str, until: str) -> Iterator[Daemon]:
        """Run the first command of a section at the driver, and end it at last."""
        found = Daemon(blocks(section)[0], self.folder, self.environment)
        try:
            found.wait_for(until)
            yield found
        finally:
            found.end()

    def kill_executor(self, worker: int) -> None:
        """Kill the executor of a worker, which starts another one."""
        found = subprocess.run(
            ["pgrep", "-f", "-P", str(self.workers[worker].process.pid), "CoarseGrainedExecutorBackend"],
            capture_output=True,
            text=True,
            check=True,
        )
        # A child of the worker that is about to become an executor has the same command line.
        for pid in found.stdout.split():
            os.kill(int(pid), signal.SIGKILL)


def machine(cache: Path) -> dict[str, str]:
    """The environment of a machine with Spark and Java, and without omnigraph."""
    import pyspark

    return {
        **{name: os.environ[name] for name in KEPT if name in os.environ},
        "JAVA_HOME": str(launcher_home(find_java(), cache)),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_SUBMIT_OPTS": QUICK,
        "MASTER_HOST": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "CONNECT_PORT": str(_free_port()),
    }


@contextmanager
def start_cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """Start a master and two workers by the commands of the page, and end them at last."""
    master_command, worker_command = blocks("Standalone")
    with ExitStack() as running:

        def start(name: str, command: str) -> Daemon:
            found = Daemon(command, folder / name, environment)
            running.callback(found.end)
            return found

        start("master", master_command).wait_for("elected leader")
        workers = tuple(start(f"worker{number}", worker_command) for number in (1, 2))
        for one in workers:
            one.wait_for("Successfully registered with master")
        yield Cluster(folder / "driver", environment, workers, running)


def _end_group(process: subprocess.Popen[str]) -> None:
    # Some of a group outlive its first process.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
