"""W9: requests at fixed times, whatever the answers before: reads, with one-row writes among them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.server.serving import ADD, HOP, POINT, SEARCH, WORDS, Server, Setting, person, serve
from bench.server.wire import AsyncConnection, request_bytes

CLIENTS = 8
WARM_SECONDS = 2
RATES = {50: 5, 200: 10, 500: 10}
"""Requests a second, and how many of them are writes."""
LATE_SECONDS = 0.05
"""A request that is sent later than this after its time is not on time."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request and when it is to be sent."""

    at: float
    sent: bytes
    is_write: bool


@dataclass(slots=True)
class Outcome:
    """What happened to the requests of one rate."""

    reads: list[float]
    writes: list[float]
    late: int = 0
    errors: int = 0


def run(setting: Setting) -> dict[str, Any]:
    """Return latencies and errors by rate."""
    found = {}
    with serve(setting.place, *setting.options) as server:
        for rate, writes in RATES.items():
            asyncio.run(
                _drive(server, list(_arrivals(setting.rows, rate, writes, WARM_SECONDS, f"warm-{rate}")))
            )
            planned = list(_arrivals(setting.rows, rate, writes, setting.seconds, f"run-{rate}"))
            found[f"{rate} a second"] = _describe(asyncio.run(_drive(server, planned)), len(planned))
    return found


def _arrivals(rows: int, rate: int, writes: int, seconds: float, name: str) -> Iterator[Arrival]:
    random = np.random.default_rng(rate)
    for number in range(int(rate * seconds)):
        at, key = number / rate, person(int(random.integers(rows)))
        if number % (rate // writes) == 0:
            body = {"query": ADD, "params": {"k": f"{name}-{number}-{time.time_ns()}"}}
            yield Arrival(at, request_bytes("/mutate", body), True)
            continue
        query, params = (
            (POINT, {"k": key}),
            (HOP, {"k": key}),
            (SEARCH, {"w": WORDS[number % len(WORDS)]}),
        )[number % 3]
        yield Arrival(at, request_bytes("/query", {"query": query, "params": params}), False)


async def _drive(server: Server, planned: list[Arrival]) -> Outcome:
    outcome, waiting = Outcome([], []), iter(planned)
    begun = time.perf_counter() + 0.1
    await asyncio.gather(*(_client(server.port, waiting, begun, outcome) for _ in range(CLIENTS)))
    return outcome


async def _client(port: int, waiting: Iterator[Arrival], begun: float, outcome: Outcome) -> None:
    connection = await AsyncConnection.open(port)
    for arrival in waiting:
        due = begun + arrival.at
        await asyncio.sleep(due - time.perf_counter())
        outcome.late += time.perf_counter() - due > LATE_SECONDS
        try:
            await connection.send(arrival.sent)
        except (RuntimeError, OSError, asyncio.IncompleteReadError):
            outcome.errors += 1
            connection = await AsyncConnection.open(port)
        # From when it was due: a request that waits for a client has waited.
        (outcome.writes if arrival.is_write else outcome.reads).append(time.perf_counter() - due)
    connection.close()


def _describe(outcome: Outcome, planned: int) -> dict[str, Any]:
    p50, p95, p99 = (float(value) for value in np.percentile(outcome.reads, [50, 95, 99]))
    return {
        "requests": planned,
        "errors": outcome.errors,
        "on time": 1 - outcome.late / planned,
        "read p50 ms": p50 * 1000,
        "read p95 ms": p95 * 1000,
        "read p99 ms": p99 * 1000,
        "read p99 / p50 (at most 5)": p99 / p50,
        "write p50 ms": float(np.median(outcome.writes)) * 1000,
    }
