"""One database in a process of its own: native libraries stay apart, and a fresh process starts cold."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import shutil
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.made import make_once
from bench.measure import AGAIN, AGED, OURS, without_collections

Parameters = Mapping[str, Any]
ROWS, ARROW, STREAM = "ask", "ask_arrow", "ask_stream"
"""The methods of an engine: all rows as tuples, as Arrow table, or as batches that are not kept."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A database to compare with: the name it has in tables, its module here, the package it needs."""

    name: str
    module: str
    package: str
    commits: int = 0
    """How many small commits its database has behind it."""
    apart: bool = True
    """Whether it has a process of its own; in short runs ours has none, because starting one costs most."""

    @property
    def installed(self) -> bool:
        """Whether it can be measured."""
        return importlib.util.find_spec(self.package) is not None

    def database(self, group: str, data: Path) -> Path:
        """Its database of this data, made by an earlier run or now."""
        if not self.commits:
            return make_once(f"{group}/{self.package}", lambda place: self._run("make", data, place))
        fresh = replace(self, commits=0).database(group, data)

        def grow_old(place: Path) -> None:
            copy(fresh, place)
            self._run("age", data, place, self.commits)

        return make_once(f"{group}/{self.package}-aged-{self.commits}", grow_old)

    def _run(self, function: str, *arguments: Any) -> None:
        if not self.apart:
            _run(self.module, function, *arguments)
            return
        process = get_context("spawn").Process(target=_run, args=(self.module, function, *arguments))
        process.start()
        process.join()
        if process.exitcode != 0:
            raise RuntimeError(f"{self.module} could not {function} its database")


def own(module: str, *, commits: int, apart: bool) -> dict[str, Peer]:
    """Ours, the same once more, and with so many commits behind it, by name."""
    ours = Peer(OURS, module, OURS, apart=apart)
    return {OURS: ours, AGAIN: replace(ours, name=AGAIN), AGED: replace(ours, name=AGED, commits=commits)}


def copy(place: Path, to: Path) -> None:
    """A database of one file or of a folder, once more."""
    if place.is_dir():
        shutil.copytree(place, to)
    else:
        shutil.copy(place, to)


@dataclass(frozen=True, slots=True)
class Took:
    """What one question cost, measured in the process that answered."""

    wall: float
    processor: float
    """Of all threads of the process; other processes on a busy machine do not count."""
    rows: Any = None


@dataclass(frozen=True, slots=True)
class Drained:
    """A result of which only the size is known, because it was never there as a whole."""

    rows: int
    nbytes: int

    def __len__(self) -> int:
        return self.rows


class Worker:
    """A process that has a database open and answers questions."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def ask(self, question: str, parameters: Parameters, method: str = ROWS, *, keep: bool = False) -> Took:
        """Ask once; the rows come along if they are to be kept."""
        return self._call("ask", question, parameters, method, keep)  # type: ignore[no-any-return]

    def ask_each(self, question: str, each: Sequence[Parameters], method: str) -> list[Took]:
        """Ask with one set of parameters after the other, without a pause."""
        return self._call("ask_each", question, each, method)  # type: ignore[no-any-return]

    def answers(self, question: str, each: Sequence[Parameters]) -> list[Any]:
        """The rows for one set of parameters after the other; nothing is measured."""
        return self._call("answers", question, each)  # type: ignore[no-any-return]

    def call(self, method: str, *arguments: Any) -> Any:
        """Whatever a method of the engine gives."""
        return self._call("call", method, *arguments)

    def memory_of(self, question: str, parameters: Parameters, method: str = ARROW) -> dict[str, int]:
        """Bytes of the process before, at most during and after a question, and of its Arrow result."""
        return self._call("memory_of", question, parameters, method)  # type: ignore[no-any-return]

    def about(self) -> tuple[str, float]:
        """The version of the database, and the seconds that importing and opening took."""
        return self._call("about")  # type: ignore[no-any-return]


@contextmanager
def worker(peer: Peer, place: Path) -> Iterator[Worker]:
    """A fresh process with a database open."""
    if not peer.apart:
        service = _Service(peer.module, place, tidy=False)
        yield Worker(lambda name, *arguments: getattr(service, name)(*arguments))
        return
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, peer.module, place), daemon=True)
    process.start()
    theirs.close()

    def call(*request: Any) -> Any:
        ours.send(request)
        failed, answer = ours.recv()
        if failed:
            raise RuntimeError(f"{request}: {answer}")
        return answer

    try:
        yield Worker(call)
    finally:
        ours.close()
        process.join(timeout=20)
        if process.is_alive():
            process.terminate()
            process.join()


# --- in the process of a database ------------------------------------------------------------------


def _run(module: str, function: str, *arguments: Any) -> None:
    getattr(importlib.import_module(module), function)(*arguments)


class _Service:
    def __init__(self, module: str, place: Path, *, tidy: bool = True) -> None:
        # To collect garbage takes long in a process that does much else.
        self._tidied: Callable[[], AbstractContextManager[None]] = (
            without_collections if tidy else nullcontext
        )
        begun = time.perf_counter()
        self._module = importlib.import_module(module)
        self._engine = self._module.Engine(place)
        self._opened = time.perf_counter() - begun

    def ask(self, question: str, parameters: Parameters, method: str, keep: bool) -> Took:
        run = getattr(self._engine, method)
        with self._tidied():
            took, found = _time_question(run, question, parameters)
        return replace(took, rows=found) if keep else took

    def ask_each(self, question: str, each: Sequence[Parameters], method: str) -> list[Took]:
        run = getattr(self._engine, method)
        with self._tidied():
            return [_time_question(run, question, parameters)[0] for parameters in each]

    def answers(self, question: str, each: Sequence[Parameters]) -> list[Any]:
        return [self._engine.ask(question, parameters) for parameters in each]

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self._engine, method)(*arguments)

    def memory_of(self, question: str, parameters: Parameters, method: str) -> dict[str, int]:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts over
        before = _memory("VmRSS")
        found = getattr(self._engine, method)(question, parameters)
        return {
            "before": before,
            "peak": _memory("VmHWM"),
            "after": _memory("VmRSS"),
            "result": found.nbytes,
            "rows": len(found),
        }

    def about(self) -> tuple[str, float]:
        return str(self._module.VERSION), self._opened


def _time_question(run: Callable[..., Any], question: str, parameters: Parameters) -> tuple[Took, Any]:
    processor, wall = time.process_time(), time.perf_counter()
    found = run(question, parameters)
    return Took(time.perf_counter() - wall, time.process_time() - processor), found


def _memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def _serve(wire: Connection, module: str, place: Path) -> None:
    service = _Service(module, place)
    while True:
        try:
            name, *arguments = wire.recv()
        except EOFError:
            return
        try:
            wire.send((False, getattr(service, name)(*arguments)))
        except Exception:  # noqa: BLE001 - sent to the caller, which fails
            wire.send((True, traceback.format_exc()))
