"""The process above the workers: owns the socket, starts them, replaces those that end, and ends with them.

A worker is a process of its own (worker_process.py). It reads its setup from its standard input, opens the
graphs, reports that in a line, and serves on demand. The kernel spreads connections over all workers that
wait on the socket, so a worker that ends takes only its own connections with it. Nothing else is lost: an
acknowledged write is a commit, and the next process recovers an interrupted one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.rows.error_json import error_from_json
from omnigraph.errors import InternalError, OmnigraphError
from omnigraph.server.admission import AdmissionTable
from omnigraph.server.auth import Tokens
from omnigraph.server.board import Board
from omnigraph.server.listen import accept_connections, print_address
from omnigraph.server.metrics import RESTARTS
from omnigraph.server.numbers import NumberFile
from omnigraph.server.settings import ServeOptions
from omnigraph.server.sources import FixedSource
from omnigraph.storage.cache_budget import CACHE_BYTES, read_cache_budget

MODULE = "omnigraph.server.worker_process"
READY = b"ready\n"
FAILED = b"failed "
SERVE = b"serve\n"
STABLE_SECONDS = 10.0
"""A worker that ended sooner is replaced after a pause, twice as long each time."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What a worker needs to know; it travels over a pipe, so tokens are digests here too."""

    options: ServeOptions
    tokens: Tokens
    source: FixedSource
    """What the server was started with."""
    board: Board
    descriptor: int
    """The socket, which the worker inherits."""

    def encode(self, index: int) -> bytes:
        """Return the setup of one worker as a line."""
        board = Board(self.board.folder, index, self.board.count)
        # The folder belongs to the supervisor. Paths are the only values that JSON does not know; they may
        # be any bytes, which `json` can carry and msgspec cannot.
        plain = msgspec.to_builtins(replace(self, board=board), enc_hook=os.fspath)
        return json.dumps(plain).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> WorkerSetup:
        """Return the setup that a supervisor sent."""
        return msgspec.convert(json.loads(line), type=cls, dec_hook=lambda _, value: Path(value))


def supervise(bound: socket.socket, setup: WorkerSetup) -> None:
    """Serve with several processes until SIGINT or SIGTERM."""
    asyncio.run(_Supervisor(bound, setup).run())


class _Supervisor:
    def __init__(self, bound: socket.socket, setup: WorkerSetup) -> None:
        self._bound, self._setup = bound, setup
        self._board = setup.board
        self._actors = len(setup.tokens.digests)
        self._stopping = asyncio.Event()
        self._counters = NumberFile(self._board.supervisor_counters)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        workers = await self._start_all()
        if workers:
            accept_connections(self._bound)
            for worker in workers:
                await worker.serve()
            print_address(self._bound)
            await asyncio.gather(*(self._keep(worker) for worker in workers))

    async def _start_all(self) -> list[_Worker]:
        """Start all workers; nothing when the server is stopped meanwhile. If one cannot start, none does."""
        workers = [await _Worker.start(self._setup, index) for index in range(self._board.count)]
        try:
            ready = asyncio.gather(*(worker.wait_until_ready() for worker in workers))
            if await self._unless_stopping(ready):
                ready.result()
                return workers
        except OmnigraphError:
            await self._end(workers)
            raise
        await self._end(workers)
        return []

    async def _keep(self, worker: _Worker) -> None:
        """Wait for the end of a worker, replace it, and so on; until the server stops."""
        pause = FIRST_PAUSE
        while await self._unless_stopping(asyncio.ensure_future(worker.process.wait())):
            self._clear(worker)
            is_stable = asyncio.get_running_loop().time() - worker.begun > STABLE_SECONDS
            pause = FIRST_PAUSE if is_stable else min(2 * pause, LONGEST_PAUSE)
            if not is_stable and not await self._unless_stopping(asyncio.ensure_future(asyncio.sleep(pause))):
                return
            worker = await self._replace(worker)
        await self._end([worker])

    async def _replace(self, ended: _Worker) -> _Worker:
        worker = await _Worker.start(self._setup, ended.index)
        try:
            if await self._unless_stopping(asyncio.ensure_future(worker.wait_until_ready())):
                await worker.serve()
        except OmnigraphError as error:
            _log.error("worker %d did not start: %s", worker.index, error)
        return worker

    async def _unless_stopping(self, wanted: asyncio.Future[Any]) -> bool:
        """Wait for something, or until the server stops; return whether it came, raising what it raised."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({wanted, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        if self._stopping.is_set():
            wanted.cancel()
            return False
        wanted.result()
        return True

    def _clear(self, worker: _Worker) -> None:
        """Forget what a worker that ended had under way; its counters stay."""
        board = Board(self._board.folder, worker.index, self._board.count)
        board.gauges.unlink(missing_ok=True)
        table = AdmissionTable(board, 1 + self._actors)
        table.clear()
        table.close()
        self._counters.add(1, RESTARTS)
        facts = {"worker": worker.index, "pid": worker.process.pid, "status": worker.process.returncode}
        _log.error("a worker ended and is replaced", extra={"facts": facts})

    async def _end(self, workers: list[_Worker]) -> None:
        for worker in workers:
            worker.stop()
        for worker in workers:
            await worker.process.wait()


class _Worker:
    """A process that serves, from the side of the supervisor."""

    def __init__(self, index: int, process: Process) -> None:
        self.index = index
        self.process = process
        self.begun = asyncio.get_running_loop().time()

    @classmethod
    async def start(cls, setup: WorkerSetup, index: int) -> _Worker:
        """Start a process and send it its setup."""
        budget = read_cache_budget() // setup.board.count
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", MODULE,
            stdin=PIPE, stdout=PIPE, pass_fds=(setup.descriptor,),
            env={**os.environ, CACHE_BYTES: str(budget)},
            process_group=0,  # Ctrl-C in a terminal reaches the supervisor alone
        )  # fmt: skip
        worker = cls(index, process)
        worker._send(setup.encode(index))
        _log.info("worker started", extra={"facts": {"worker": index, "pid": process.pid}})
        return worker

    async def wait_until_ready(self) -> None:
        """Wait until the graphs are open; raises what kept the worker from opening them."""
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if line.startswith(FAILED):
            raise error_from_json(msgspec.json.decode(line.removeprefix(FAILED)))
        if line != READY:
            raise InternalError(f"worker {self.index} ended with status {await self.process.wait()}")

    async def serve(self) -> None:
        """Let the worker take connections."""
        self._send(SERVE)

    def stop(self) -> None:
        """Let the worker finish what is under way, and end."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)

    def _send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        # A worker that is gone reads nothing; its end is noticed where it is waited for.
        if not self.process.stdin.is_closing():
            self.process.stdin.write(data)
