"""What HTTP adds: a point read and one-row writes, over HTTP and in this process."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import omnigraph as og
from bench.server.serving import ADD, POINT, Setting, person, run_server, serve
from bench.server.wire import Connection

WRITERS = 8
ROUNDS = 5


def point_reads(setting: Setting) -> dict[str, Any]:
    """Return how a read by key over HTTP compares with its parts: the same stack, and the same query."""
    body = {"query": POINT, "params": {"k": person(setting.rows // 2)}}
    with serve(setting.place, *setting.options) as server, og.open(setting.place) as graph:
        over_http = Connection(server.port)
        size = len(over_http.send("/query", body))
        with run_server("-m", "bench.server.constant", str(setting.place), str(size)) as bare:
            constant = Connection(bare.port)
            calls: dict[str, Callable[[], Any]] = {
                "http": lambda: over_http.send("/query", body),
                "constant": lambda: constant.send("/query", body),
                "in process": lambda: graph.query(POINT, body["params"]),  # type: ignore[arg-type]
            }
            found = _take_turns(calls, setting.seconds)
    total = found["constant"] + found["in process"]
    times = {f"{name} ms": value * 1000 for name, value in found.items()}
    return {**times, "http / (constant + in process) (at most 1.5)": found["http"] / total}


def _take_turns(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the median of each call; they take turns, so that all meet the same moments of the machine."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            begun = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - begun)
    return {name: statistics.median(values) for name, values in taken.items()}


def writes(setting: Setting) -> dict[str, Any]:
    """Return how many one-row writes a second eight threads get, over HTTP and in this process."""
    copies = [setting.place.with_name(f"{name}.omni") for name in ("http", "local")]
    for copy in copies:
        shutil.copytree(setting.place, copy)
    rates: dict[str, list[float]] = {"http": [], "in process": []}
    with serve(copies[0], *setting.options) as server, og.open(copies[1]) as graph:
        connections = [Connection(server.port) for _ in range(WRITERS)]

        def send(thread: int, key: str) -> None:
            connections[thread].send("/mutate", {"query": ADD, "params": {"k": key}})

        def call(_: int, key: str) -> None:
            graph.mutate(ADD, {"k": key})

        for turn in range(ROUNDS):
            share = setting.seconds / (2 * ROUNDS)
            rates["http"].append(_rate(send, share, f"h{turn}"))
            rates["in process"].append(_rate(call, share, f"l{turn}"))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return {**medians, "http / in process (at least 0.9)": medians["http"] / medians["in process"]}


def _rate(write: Callable[[int, str], None], seconds: float, name: str) -> float:
    end = time.perf_counter() + seconds

    def work(thread: int) -> int:
        number = 0
        while time.perf_counter() < end:
            write(thread, f"{name}-{thread}-{number}")
            number += 1
        return number

    begun = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as pool:
        done = sum(pool.map(work, range(WRITERS)))
    return done / (time.perf_counter() - begun)
