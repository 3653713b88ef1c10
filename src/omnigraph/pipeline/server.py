"""A warm Spark on this machine: a Connect server that sessions find automatically.

Its folder in the cache holds its state (`state.json`, readable only by the owner, with the token of clients),
its output (`log.txt`) and `users.lock`, on which every client holds a shared lock as long as it lives. So the
kernel knows whether the server is in use, and a client that dies needs no cleanup.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO

from omnigraph import __version__
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import SparkUnavailable
from omnigraph.pipeline.cache_files import cache_folder, write_atomically
from omnigraph.pipeline.processes import is_ours, start_detached
from omnigraph.pipeline.spark_settings import DEFAULT_MEMORY

HOST = "127.0.0.1"
IDLE_MINUTES = 30.0
START_SECONDS = 180.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """The server that its supervisor is to start."""

    identity: str
    """A random text in the command lines of its processes, by which they are recognised."""
    token: str
    """What a client must present; never in a command line, which every user can read."""
    port: int
    master: str
    memory: str
    idle_minutes: float


@dataclass(frozen=True, slots=True)
class Server:
    """A server that its supervisor started."""

    identity: str
    token: str
    port: int
    master: str
    memory: str
    idle_minutes: float
    keeper: int
    jvm: int
    started: float

    @property
    def url(self) -> str:
        """The address for a session, with the token in it."""
        # With this name, and not with an IP address, the client sends the token without TLS.
        return f"sc://localhost:{self.port}/;token={self.token}"

    @property
    def address(self) -> str:
        """The address without the token."""
        return f"sc://localhost:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether both processes run, and are the ones we started."""
        return is_ours(self.keeper, self.identity) and is_ours(self.jvm, self.identity)


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """The files of the server of one Python environment."""

    path: Path

    @classmethod
    def of_this_environment(cls) -> ServerFolder:
        named = f"{Path(sys.prefix).resolve()} {sys.version_info[:2]} {__version__}"
        path = cache_folder() / f"spark-server-{hashlib.sha256(named.encode()).hexdigest()[:12]}"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return cls(path)

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def wish(self) -> Path:
        return self.path / "wish.json"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def users(self) -> Path:
        return self.path / "users.lock"

    def read(self) -> Server | None:
        """Return what the last supervisor wrote; that server may be gone."""
        try:
            return Server(**json.loads(self.state.read_text(encoding="utf-8")))
        except (FileNotFoundError, json.JSONDecodeError, TypeError):
            return None

    def write(self, server: Server) -> None:
        write_atomically(self.state, json.dumps(asdict(server)))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep two processes from starting or stopping the server at the same time."""
        with (self.path / "start.lock").open("a") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield


# Held until this process ends.
_leases: dict[str, IO[str]] = {}


def find_server() -> Server | None:
    """Return the warm server of this environment, if it runs and answers."""
    found = ServerFolder.of_this_environment().read()
    return found if found is not None and found.alive and _accepts_connections(found.port) else None


def lease() -> Server | None:
    """Return the warm server, and keep it running while this process lives."""
    folder = ServerFolder.of_this_environment()
    found = find_server()
    if found is None or found.identity in _leases:
        return found
    users = folder.users.open("a")
    try:
        fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        # Its supervisor holds the lock exclusively: it is shutting down.
        users.close()
        return None
    os.utime(folder.users)
    if folder.read() != found:
        users.close()
        return None
    _leases[found.identity] = users
    return found


def start(
    *, master: str = "local[*]", memory: str = DEFAULT_MEMORY, idle_minutes: float = IDLE_MINUTES
) -> tuple[Server, bool]:
    """Return the warm server, and whether this call started it."""
    folder = ServerFolder.of_this_environment()
    with folder.lock():
        if (there := find_server()) is not None:
            return there, False
        _end_server(folder)
        spec = ServerSpec(
            secrets.token_hex(16), secrets.token_hex(24), _free_port(), master, memory, float(idle_minutes)
        )
        write_atomically(folder.wish, json.dumps(asdict(spec)))
        folder.log.unlink(missing_ok=True)
        start_detached(
            [sys.executable, "-m", "omnigraph.pipeline.server_supervisor", str(folder.path), spec.identity],
            log=folder.log,
        )
        return _wait_until_started(folder, spec), True


def stop() -> bool:
    """Stop the warm server, wait until it is gone, and return whether there was one."""
    folder = ServerFolder.of_this_environment()
    with folder.lock():
        return _end_server(folder)


def log_tail(folder: ServerFolder) -> str:
    """Return the last line of the server's log."""
    try:
        lines = folder.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except FileNotFoundError:
        return "it wrote nothing"
    return lines[-1] if lines else "it wrote nothing"


def _wait_until_started(folder: ServerFolder, spec: ServerSpec) -> Server:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = folder.read()
        if (
            found is not None
            and found.identity == spec.identity
            and found.alive
            and _accepts_connections(found.port)
        ):
            return found
        if not folder.wish.exists() and found is None:
            break
        time.sleep(POLL_SECONDS)
    _end_server(folder)
    raise SparkUnavailable(
        f"the Spark server did not start: {log_tail(folder)}",
        master=spec.master,
        remedy=f"see {folder.log} and `omnigraph spark doctor`",
    )


def _end_server(folder: ServerFolder) -> bool:
    """Stop the supervisor and with it the server; end a JVM whose supervisor died, never another process."""
    found = folder.read()
    folder.wish.unlink(missing_ok=True)
    if found is None:
        return False
    was_there = _end_process(found, found.keeper, signal.SIGTERM)
    for how in (signal.SIGTERM, signal.SIGKILL):
        was_there |= _end_process(found, found.jvm, how)
    folder.state.unlink(missing_ok=True)
    return was_there


def _end_process(server: Server, pid: int, how: signal.Signals) -> bool:
    """Send a signal and wait until the process ends; return whether there was one."""
    if not is_ours(pid, server.identity):
        return False
    os.kill(pid, how)
    deadline = time.monotonic() + STOP_SECONDS
    while is_ours(pid, server.identity) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _accepts_connections(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
