"""A large result over HTTP: as Arrow beside the same query in this process, as JSON beside its encoding."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

import omnigraph as og
from bench.server.serving import ALL, Server, Setting, serve
from bench.server.wire import Connection

ARROW = "application/vnd.apache.arrow.stream"
ROUNDS = 3


def run(setting: Setting) -> dict[str, Any]:
    """Return the ratios, and how much the memory of the server grew while it sent Arrow."""
    with serve(setting.place, *setting.options) as server, og.open(setting.place) as graph:
        connection = Connection(server.port)
        body = {"query": ALL}
        table = graph.query(ALL).rows()
        found = {
            "arrow": lambda: _drain(connection, body, ARROW),
            "json": lambda: _drain(connection, body, "*/*"),
            "in process": lambda: graph.query(ALL).table.num_rows,
            "msgspec": lambda: msgspec.json.encode(table),
        }
        times = {name: _best(call) for name, call in found.items()}
        before = server.memory()
        grown = _peak(server, lambda: _drain(connection, body, ARROW)) - before
    return {
        "rows": len(table),
        **{f"{name} seconds": value for name, value in times.items()},
        "arrow / in process (at most 1.5)": times["arrow"] / times["in process"],
        "json / msgspec (at most 2.5)": times["json"] / times["msgspec"],
        "server grew during arrow, MB": grown / 2**20,
    }


def _drain(connection: Connection, body: dict[str, Any], accept: str) -> int:
    return sum(map(len, connection.stream("/query", body, accept)))


def _best(call: Callable[[], Any]) -> float:
    call()
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def _peak(server: Server, call: Callable[[], Any]) -> int:
    """Return the most memory of a server while something runs."""
    seen, done = [server.memory()], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            seen.append(server.memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        done.set()
        watcher.join()
    return max(seen)
