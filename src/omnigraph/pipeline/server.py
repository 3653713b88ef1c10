"""A warm Spark on this machine: a Connect server that sessions find by themselves.

Its folder in the cache holds who it is (`state.json`, for the owner only, with the token that clients show),
what it wrote (`log.txt`) and `users.lock`, which every client holds shared for as long as it lives. So
whether anybody uses the server is a question to the kernel, and a client that dies needs no tidying.
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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from omnigraph import __version__
from omnigraph.errors import SparkUnavailable
from omnigraph.pipeline.places import cache_folder, write_whole
from omnigraph.pipeline.processes import is_ours, start_detached
from omnigraph.pipeline.spark_settings import DEFAULT_MEMORY

HOST = "127.0.0.1"
IDLE_MINUTES = 30.0
START_SECONDS = 180.0
STOP_SECONDS = 60.0
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Wish:
    """What a server is to be, as its keeper is told."""

    identity: str
    """In the command lines of its processes, so that nothing else is ever taken for them."""
    token: str
    """What a client must show; never in a command line, which everybody can read."""
    port: int
    master: str
    memory: str
    idle_minutes: float


@dataclass(frozen=True, slots=True)
class Server:
    """A server that its keeper started."""

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
        # This name, and not the number of the address, lets the client send the token without TLS.
        return f"sc://localhost:{self.port}/;token={self.token}"

    @property
    def address(self) -> str:
        """The address without the token."""
        return f"sc://localhost:{self.port}"

    @property
    def alive(self) -> bool:
        """Both processes are there, and are the ones we started."""
        return is_ours(self.keeper, self.identity) and is_ours(self.jvm, self.identity)


@dataclass(frozen=True, slots=True)
class ServerFolder:
    """The files of the server of this Python environment; another one has its own."""

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
        """What the last keeper wrote; the server it tells of may be gone."""
        try:
            return Server(**json.loads(self.state.read_text(encoding="utf-8")))
        except (FileNotFoundError, json.JSONDecodeError, TypeError):
            return None

    def write(self, server: Server) -> None:
        write_whole(self.state, json.dumps(asdict(server)))

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Keeps two processes from starting or stopping the server at once."""
        with (self.path / "start.lock").open("a") as gate:
            fcntl.flock(gate, fcntl.LOCK_EX)
            yield


# Held until this process ends.
_leases: dict[str, IO[str]] = {}


def running() -> Server | None:
    """The warm server of this environment, if it is there and answers."""
    found = ServerFolder.of_this_environment().read()
    return found if found is not None and found.alive and _answers(found.port) else None


def lease() -> Server | None:
    """The warm server, kept from ending while this process lives."""
    folder = ServerFolder.of_this_environment()
    found = running()
    if found is None or found.identity in _leases:
        return found
    users = folder.users.open("a")
    try:
        fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        # Its keeper holds the lock alone, which means it is ending.
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
    """The warm server, started if need be; the second value tells whether it was."""
    folder = ServerFolder.of_this_environment()
    with folder.one_at_a_time():
        if (there := running()) is not None:
            return there, False
        _end(folder)
        wish = Wish(
            secrets.token_hex(16), secrets.token_hex(24), _free_port(), master, memory, float(idle_minutes)
        )
        write_whole(folder.wish, json.dumps(asdict(wish)))
        folder.log.unlink(missing_ok=True)
        start_detached(
            [sys.executable, "-m", "omnigraph.pipeline.keeper", str(folder.path), wish.identity],
            log=folder.log,
        )
        return _awaited(folder, wish), True


def stop() -> bool:
    """End the warm server and wait until it is gone; tells whether there was one."""
    folder = ServerFolder.of_this_environment()
    with folder.one_at_a_time():
        return _end(folder)


def log_tail(folder: ServerFolder) -> str:
    """The last line a server wrote."""
    try:
        lines = folder.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except FileNotFoundError:
        return "it wrote nothing"
    return lines[-1] if lines else "it wrote nothing"


def _awaited(folder: ServerFolder, wish: Wish) -> Server:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        found = folder.read()
        if found is not None and found.identity == wish.identity and found.alive and _answers(found.port):
            return found
        if not folder.wish.exists() and found is None:
            break
        time.sleep(LOOK_SECONDS)
    _end(folder)
    raise SparkUnavailable(
        f"the Spark server did not start: {log_tail(folder)}",
        master=wish.master,
        remedy=f"see {folder.log} and `omnigraph spark doctor`",
    )


def _end(folder: ServerFolder) -> bool:
    """Ask the keeper to end its server; one whose keeper died is ended here. Strangers are left alone."""
    found = folder.read()
    folder.wish.unlink(missing_ok=True)
    if found is None:
        return False
    was_there = _gone(found, found.keeper, signal.SIGTERM)
    for how in (signal.SIGTERM, signal.SIGKILL):
        was_there |= _gone(found, found.jvm, how)
    folder.state.unlink(missing_ok=True)
    return was_there


def _gone(server: Server, pid: int, how: signal.Signals) -> bool:
    """Send a signal and wait for the end; tells whether there was anything to end."""
    if not is_ours(pid, server.identity):
        return False
    os.kill(pid, how)
    deadline = time.monotonic() + STOP_SECONDS
    while is_ours(pid, server.identity) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
