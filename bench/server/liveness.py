"""/healthz beside heavy queries, and the memory of a server with many connections."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np

from bench.server.serving import HEAVY, POINT, Server, Setting, person, serve
from bench.server.wire import AsyncConnection, request_bytes

HEAVY_CLIENTS = 16
IDLE, BUSY = 200, 50
PAUSE = 0.02


def health(setting: Setting) -> dict[str, Any]:
    """Return how quickly /healthz answers while sixteen clients send heavy queries."""
    with serve(setting.place, *setting.options) as server:
        return asyncio.run(_health(server, setting.seconds))


async def _health(server: Server, seconds: float) -> dict[str, Any]:
    end = time.perf_counter() + seconds
    heavy = request_bytes("/query", {"query": HEAVY})
    taken: list[float] = []

    async def ask() -> None:
        connection = await AsyncConnection.open(server.port)
        while time.perf_counter() < end:
            begun = time.perf_counter()
            await connection.send(request_bytes("/healthz", None))
            taken.append(time.perf_counter() - begun)
            await asyncio.sleep(PAUSE)

    queries = [_repeat(server.port, heavy, end) for _ in range(HEAVY_CLIENTS)]
    done = await asyncio.gather(ask(), *queries)
    p50, p95 = (float(value) * 1000 for value in np.percentile(taken, [50, 95]))
    return {"heavy queries": sum(done[1:]), "healthz p50 ms": p50, "healthz p95 ms (at most 50)": p95}


async def _repeat(port: int, sent: bytes, end: float, pause: float = 0) -> int:
    connection, done = await AsyncConnection.open(port), 0
    while time.perf_counter() < end:
        await connection.send(sent)
        done += 1
        await asyncio.sleep(pause)
    connection.close()
    return done


def memory(setting: Setting) -> dict[str, Any]:
    """Return how much memory a server gains with 200 idle and 50 busy connections, after a first quarter."""
    with serve(setting.place, *setting.options) as server:
        return asyncio.run(_memory(server, setting.rows, setting.seconds))


async def _memory(server: Server, rows: int, seconds: float) -> dict[str, Any]:
    idle = [await AsyncConnection.open(server.port) for _ in range(IDLE)]
    for connection in idle:
        await connection.send(request_bytes("/healthz", None))
    body = {"query": POINT, "params": {"k": person(rows // 2)}}
    begun = time.perf_counter()
    end = begun + seconds
    busy = [_repeat(server.port, request_bytes("/query", body), end, PAUSE * 5) for _ in range(BUSY)]
    seen: list[int] = []

    async def watch() -> None:
        while time.perf_counter() < end:
            if time.perf_counter() - begun > seconds / 4:
                seen.append(server.memory())
            await asyncio.sleep(seconds / 100)

    done = await asyncio.gather(watch(), *busy)
    for connection in idle:
        connection.close()
    return {
        "requests": sum(done[1:]),
        "memory MB": seen[-1] / 2**20,
        "most / first (at most 1.05)": max(seen) / seen[0],
    }
