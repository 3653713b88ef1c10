"""A graph to serve, and servers as processes on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import omnigraph as og

SCHEMA = """\
node Person {
    name: String @key
    age: I32
    bio: String @index
}
edge Knows: Person -> Person
"""
WORDS = ("amber", "birch", "cedar", "delta", "ember", "frost", "grove", "haven", "inlet", "jade")
POINT = "query point($k: String) { match { $p: Person  $p.name = $k } return { $p.name, $p.age, $p.bio } }"
HOP = "query hop($k: String) { match { $p: Person  $p.name = $k  $p knows $f } return { $f.name } }"
SEARCH = (
    "query find($w: String) { match { $p: Person } return { $p.name } order { bm25($p.bio, $w) } limit 10 }"
)
ADD = "query add($k: String) { insert Person { name: $k, age: 1, bio: $k } }"
ALL = "query all() { match { $p: Person } return { $p.name, $p.age, $p.bio } }"
HEAVY = "query heavy() { match { $p: Person  $p knows $f  $f knows $g } return { $g.age, count($p) as n } }"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a figure is measured on."""

    place: Path
    rows: int
    seconds: float
    options: tuple[str, ...]
    """Further options of the server."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers."""

    port: int
    pid: int

    def memory(self) -> int:
        """Return the resident bytes of the server and its workers."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return sum(_resident(pid) for pid in (self.pid, *map(int, children)))


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def make_graph(place: Path, rows: int) -> None:
    """Make a graph of people with three acquaintances each and a few words about them."""
    random = np.random.default_rng(1)
    names = [person(number) for number in range(rows)]
    words = random.integers(0, len(WORDS), (rows, 6))
    people = {
        "name": names,
        "age": pa.array(random.integers(1, 90, rows), pa.int32()),
        "bio": [" ".join(WORDS[word] for word in line) for line in words],
    }
    ends = random.integers(0, rows, (2, 3 * rows))
    named = np.array(names)
    knows = {"from": pa.array(named[ends[0]]), "to": pa.array(named[ends[1]])}
    with og.init(place, schema=SCHEMA) as graph:
        graph.load(pa.table(people), type="Person", mode="append")
        graph.load(pa.table(knows), type="Knows", mode="append")
        graph.optimize()


def person(number: int) -> str:
    """Return the key of a person."""
    return f"person-{number:08}"


@contextmanager
def serve(place: Path, *options: str) -> Iterator[Server]:
    """Serve a graph, without logs of requests."""
    command = ["-m", "omnigraph", "serve", "--store", str(place), "--unauthenticated"]
    with run_server(*command, "--bind", "127.0.0.1:0", *options) as server:
        yield server


@contextmanager
def run_server(*arguments: str) -> Iterator[Server]:
    """Run Python with arguments that start a server; it is ended at the end."""
    settings = {**os.environ, "OMNIGRAPH_LOG": "error", "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": "1000"}
    process = subprocess.Popen([sys.executable, *arguments], env=settings, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        name, _, address = process.stdout.readline().strip().partition("=")
        assert name == "OMNIGRAPH_LISTEN_ADDR", "the server did not start"
        yield Server(int(address.rpartition(":")[2]), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
