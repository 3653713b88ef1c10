"""Writer processes that a test starts, stops, continues and kills."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.storage.location import Location
from tests.engine.processes.people import new_people

PASS = "pass "
PROJECT = Path(__file__).parents[3]


class Nursery:
    """The process that writers are forked from."""

    def __init__(self) -> None:
        self._life, self._end_of_life = os.pipe()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.engine.processes.nursery", str(theirs.fileno())],
                cwd=PROJECT,
                pass_fds=[theirs.fileno(), self._life],
                env={**os.environ, "CHILD_LIFE": str(self._life)},
            )

    def fork(self, channel: socket.socket) -> int:
        """A writer at the other end of a channel; returns its process id."""
        socket.send_fds(self._control, [json.dumps({"do": "fork"}).encode()], [channel.fileno()])
        return int(self._control.recv(100))

    def wait(self, pid: int, what: str) -> None:
        """Wait until a writer is stopped, or ended."""
        self._control.send(json.dumps({"do": f"wait until {what}", "pid": pid}).encode())
        assert self._control.recv(100).decode() == what

    def end(self) -> None:
        self._control.close()
        self._process.wait()
        os.close(self._end_of_life)
        os.close(self._life)


class Worker:
    """A writer process."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._channel, theirs = socket.socketpair()
        with theirs:
            self.pid = nursery.fork(theirs)
        self._answers = self._channel.makefile("r")
        self.alive = True
        self.busy = False

    def send(self, do: str, **arguments: Any) -> None:
        self._channel.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self.busy = True

    def answer(self) -> dict[str, Any]:
        """The next thing it says: the answer, or that it stands still or dies."""
        line = self._answers.readline()
        assert line, "the writer ended without an answer"
        answer: dict[str, Any] = json.loads(line)
        self.busy = "stopped" in answer
        return answer

    def do(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.send(do, **arguments)
        return self.answer()

    def mutate(self, text: str, branch: str = "main") -> dict[str, Any]:
        return self.do("mutate", text=text, branch=branch)

    def commits(self, text: str, branch: str = "main") -> str:
        """Write, and require that it took effect."""
        done = self.mutate(text, branch)
        assert done.get("commit"), done
        return str(done["commit"])

    def arm(self, *places: str, action: str = "stop") -> None:
        """What it does at places on its way, one after the other.

        `place` alone is where it takes the action, `pass place` it must have come through before.
        """
        steps = [(place.removeprefix(PASS), "pass" if place.startswith(PASS) else action) for place in places]
        self.do("arm", steps=steps)

    def stops(self, text: str, *places: str, branch: str = "main", long: bool = False) -> None:
        """Write, and stand still at the first of these places."""
        self.arm(*places, action="stop-long" if long else "stop")
        self.send("mutate", text=text, branch=branch)
        self.stands_still()

    def stands_still(self) -> dict[str, Any]:
        """Wait until it has really stopped."""
        said = self.answer()
        assert "stopped" in said, said
        self._nursery.wait(self.pid, "stopped")
        return said

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def goes_on(self) -> dict[str, Any]:
        """Let it go on from where it stands, and hear how that ends."""
        self.resume()
        return self.answer()

    def goes_to_next(self) -> None:
        """Let it go on to the next place where it stands still."""
        self.resume()
        self.stands_still()

    def dies(self, do: str, *places: str, **arguments: Any) -> None:
        """Work, and end at once at a place on the way."""
        self.arm(*places, action="die")
        said = self.do(do, **arguments)
        assert "died" in said, said
        self.kill()

    def kill(self) -> None:
        """SIGKILL, which also ends a process that stands still."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
            self._nursery.wait(self.pid, "ended")
            self.alive = False

    def end(self) -> None:
        self.kill()
        self._answers.close()
        self._channel.close()


class Workers:
    """Writer processes, kept for the next test while they are alive and idle."""

    def __init__(self) -> None:
        self._nursery = Nursery()
        self._idle: list[Worker] = []

    def take(self) -> Worker:
        return self._idle.pop() if self._idle else Worker(self._nursery)

    def put_back(self, worker: Worker) -> None:
        if worker.alive and not worker.busy:
            self._idle.append(worker)
        else:
            worker.end()

    def end(self) -> None:
        for worker in self._idle:
            worker.end()
        self._nursery.end()


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    """The writer processes of this test worker."""
    found = Workers()
    yield found
    found.end()


@pytest.fixture
def people_graph(shared_root: Location) -> Location:
    """The place of a small graph that several processes can reach."""
    new_people(shared_root)
    return shared_root


Start = Callable[..., Worker]


@pytest.fixture
def writer(workers: Workers, people_graph: Location) -> Iterator[Start]:
    """Starts writers on the graph; they end, or are kept, with the test."""
    taken: list[Worker] = []

    def start(**options: Any) -> Worker:
        taken.append(workers.take())
        environment = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        assert taken[-1].do("use", uri=people_graph.uri, environment=environment, **options) == {"done": True}
        return taken[-1]

    yield start
    for each in taken:
        workers.put_back(each)
