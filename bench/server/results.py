"""A large result over HTTP: as Arrow beside the same query in this process, as JSON beside its encoding.

In process the batches are written as a stream of Arrow, too: a query whose columns are in memory returns
references to them in no time, and nothing that is sent anywhere compares with that. What the bytes cost on
their way is measured by a server of the same stack that answers with as many.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

import omnigraph as og
from bench.server.serving import ALL, Server, Setting, run_server, serve
from bench.server.wire import Connection

ARROW = "application/vnd.apache.arrow.stream"
ROUNDS = 5
BATCH_ROWS = 16_384
"""The same as in an answer."""


def run(setting: Setting) -> dict[str, Any]:
    """Return the ratios, and how much the memory of the server grew while it sent Arrow."""
    with serve(setting.place, *setting.options) as server, og.open(setting.place) as graph:
        connection, body = Connection(server.port), {"query": ALL}
        streams: dict[str, Callable[[], Any]] = {
            "arrow": lambda: _drain(connection, body, ARROW),
            "in process": lambda: _write(graph),
        }
        cold = _measure(streams)
        size = _drain(connection, body, ARROW)
        before = server.memory()
        grown = _peak(server, lambda: _drain(connection, body, ARROW)) - before
        rows = graph.query(ALL).rows()
        _drain(connection, body, "*/*")
        with run_server("-m", "bench.server.constant", str(setting.place), str(size)) as bare:
            constant = Connection(bare.port)
            warm = _measure(
                {
                    **streams,
                    "constant": lambda: _drain(constant, body, "*/*"),
                    "json": lambda: _drain(connection, body, "*/*"),
                    "msgspec": lambda: msgspec.json.encode(rows),
                }
            )
    return {
        "rows": len(rows),
        **{f"{name} seconds, nothing in memory": value for name, value in cold.items()},
        "arrow / in process, nothing in memory (at most 1.5)": cold["arrow"] / cold["in process"],
        **{f"{name} seconds": value for name, value in warm.items()},
        "arrow / (constant + in process) (at most 1.5)": warm["arrow"]
        / (warm["constant"] + warm["in process"]),
        "json / msgspec (at most 2.5)": warm["json"] / warm["msgspec"],
        "server grew during arrow, MB": grown / 2**20,
    }


def _drain(connection: Connection, body: dict[str, Any], accept: str) -> int:
    return sum(map(len, connection.stream("/query", body, accept)))


def _write(graph: og.Graph) -> int:
    """Run the query, and write its batches as the server does, to nowhere."""
    with graph.stream(ALL, batch_rows=BATCH_ROWS) as batches:
        sink = pa.MockOutputStream()
        with pa.ipc.new_stream(sink, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return int(sink.size())


def _measure(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the median of each call; they take turns, so that all meet the same moments of the machine."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values[1:]) for name, values in taken.items()}


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
