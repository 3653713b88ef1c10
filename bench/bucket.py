"""Small operations in a bucket that takes 20 ms for each request; sixteen writers in it and in a folder."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count

import omnigraph
from bench.machine import ROOT
from bench.measure import OURS, QUICK, SHORT, WHOLE, Figure, Result, setting, time_in_turns

LATENCY = 20
"""Milliseconds by which every answer is late."""
WRITERS = 16
REQUEST = "one request"
SERVER = ROOT / "tests" / "storage" / "s3_server.py"
SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person\n" + "".join(
    f"node Type{number} {{ text: String }}\n" for number in range(WRITERS)
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How often each operation is timed, and how many rows each of sixteen writers adds in a round."""

    rounds: int
    turns: int
    each: int


PLANS = {WHOLE: Plan(15, 5, 6), QUICK: Plan(6, 3, 4), SHORT: Plan(1, 1, 1)}


def run(size: str) -> Result:
    """Time operations beside a single request, and writers together beside a writer alone."""
    plan = PLANS[size]
    latency = 1 if size == SHORT else LATENCY
    with ExitStack() as stack:
        stack.enter_context(setting("OMNIGRAPH_LOCK_WAIT", "600"))
        server = stack.enter_context(_late_bucket(latency))
        work = _Operations(server)
        times = time_in_turns(work.tasks(), plan.rounds)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        writers = [
            (f"{where}, {what}", _Writers(f"{place}/{what.split()[-1]}", branches=what == "branches"))
            for where, place in (("folder", folder), ("bucket", f"s3://{server.bucket}"))
            for what in ("branches", "disjoint tables")
        ]
        figures = [_compare(name, crew, plan) for name, crew in writers]
    return Result(
        times=times,
        limits=(REQUEST,),
        figures=tuple(figures),
        facts={"milliseconds of a request": latency, "writers": WRITERS},
    )


def _compare(name: str, crew: _Writers, plan: Plan) -> Figure:
    """The rows a second of sixteen writers, by those of one."""
    rates = [(crew.write(WRITERS, plan.each), crew.write(1, plan.each)) for _ in range(plan.turns)]
    gain = statistics.median(many / one for many, one in rates)
    crew.require_all()
    return Figure(f"rows a second of {WRITERS} writers: {name}", "one writer", gain)


# --- the server ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Server:
    """An S3 server that answers late."""

    endpoint: str
    bucket: str

    def request(self) -> None:
        """One request that finds nothing."""
        with urllib.request.urlopen(f"{self.endpoint}/{self.bucket}?list-type=2&prefix=none") as answer:
            answer.read()


@contextmanager
def _late_bucket(latency: int) -> Iterator[_Server]:
    with subprocess.Popen(
        [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"do": "start", "ignore": [], "lose": None}) + "\n")
        process.stdin.flush()
        server = _Server(f"http://127.0.0.1:{int(process.stdout.readline())}", "graphs")
        with _environment(server):
            made = urllib.request.Request(f"{server.endpoint}/{server.bucket}", method="PUT")
            urllib.request.urlopen(made).close()
            urllib.request.urlopen(f"{server.endpoint}/-/latency?milliseconds={latency}").close()
            yield server
        process.stdin.close()


@contextmanager
def _environment(server: _Server) -> Iterator[None]:
    settings = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "bench",
        "AWS_SECRET_ACCESS_KEY": "bench",
        "AWS_REGION": "us-east-1",
    }
    before = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("AWS_")}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name in settings:
            del os.environ[name]
        os.environ.update(before)


# --- operations of one process -------------------------------------------------------------------


class _Operations:
    """Small operations on a graph that was written to before."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._uri = f"s3://{server.bucket}/operations"
        self._graph = omnigraph.init(self._uri, schema=SCHEMA)
        self._numbers = count()
        self._branch = ""

    def tasks(self) -> dict[tuple[str, str], Callable[[], object]]:
        """What is timed, each beside one request."""
        ours: dict[str, Callable[[], object]] = {
            "one row into one table": lambda: self._write("main", 1),
            "one row into two tables": lambda: self._write("main", 1, more='insert Type0 { text: "x" }'),
            "a branch and ten rows on it": self._begin_branch,
            "merge of ten rows": lambda: self._graph.merge(self._branch),
            "delete of a branch": lambda: self._graph.branches.delete(self._branch),
            "open": lambda: omnigraph.open(self._uri),
        }
        tasks: dict[tuple[str, str], Callable[[], object]] = {}
        for what, task in ours.items():
            tasks[what, OURS] = task
            tasks[what, REQUEST] = self._server.request
        return tasks

    def _write(self, branch: str, rows: int, more: str = "") -> None:
        inserts = " ".join(f'insert Person {{ name: "p{next(self._numbers)}" }}' for _ in range(rows))
        self._graph.mutate(f"query q() {{ {inserts} {more} }}", branch=branch)

    def _begin_branch(self) -> None:
        self._branch = f"b{next(self._numbers)}"
        self._graph.branches.create(self._branch)
        self._write(self._branch, 10)


# --- sixteen writers -----------------------------------------------------------------------------


class _Writers:
    """Threads that share one graph; each has a branch of its own, or a table of its own on main."""

    def __init__(self, uri: str, *, branches: bool) -> None:
        self._graph = omnigraph.init(uri, schema=SCHEMA)
        self._branches = [f"b{number}" if branches else "main" for number in range(WRITERS)]
        for branch in sorted(set(self._branches) - {"main"}):
            self._graph.branches.create(branch)
        self._written = [0] * WRITERS
        self.write(WRITERS, 1)

    def write(self, threads: int, each: int) -> float:
        """Let so many threads add so many rows each, one commit a row; the rows a second."""
        start = threading.Barrier(threads + 1)
        failures: list[BaseException] = []

        def work(number: int) -> None:
            start.wait()
            try:
                for _ in range(each):
                    self._graph.mutate(
                        f'query q() {{ insert Type{number} {{ text: "x" }} }}', branch=self._branches[number]
                    )
                    self._written[number] += 1
            except BaseException as failure:  # noqa: BLE001 - raised below, in the thread that waits
                failures.append(failure)

        crew = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for one in crew:
            one.start()
        start.wait()
        begun = time.perf_counter()
        for one in crew:
            one.join()
        if failures:
            raise failures[0]
        return threads * each / (time.perf_counter() - begun)

    def require_all(self) -> None:
        """Every row must be there."""
        for number, rows in enumerate(self._written):
            query = f"query q() {{ match {{ $t: Type{number} }} return {{ count($t) as rows }} }}"
            found = self._graph.query(query, branch=self._branches[number]).scalar()
            assert found == rows, f"writer {number} added {rows} rows, and {found} are there"
