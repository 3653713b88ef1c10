"""What runs at the same time: tables and files that a write stages, and calls to a store that is far away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache, partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from omnigraph.errors import BadRequest
from omnigraph.storage.location import Location

SETTING = "OMNIGRAPH_LOAD_CONCURRENCY"
DEFAULT = 8

_CALL_THREADS = 64
"""They wait for answers and compute nothing; a writer needs a handful of them."""

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def load_concurrency() -> int:
    """The value of `OMNIGRAPH_LOAD_CONCURRENCY`, 8 when it is not set."""
    value = os.environ.get(SETTING, str(DEFAULT))
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise BadRequest(f"{SETTING} is '{value}'", remedy="set it to a number from 1 on, or unset it")
    return int(value)


def run_per_table(one: Callable[[_Item], _Answer], tables: Sequence[_Item]) -> list[_Answer]:
    """What is found for each table, in order; this thread takes part, with others that writes share.

    A failure is raised after all of them have ended: no thread works for a write that was given up.
    """
    return _run_all([partial(one, table) for table in tables], "tables", load_concurrency() - 1)


def run_per_file(one: Callable[[str], None], names: Sequence[str]) -> None:
    """Do something for each file, in threads that all tables of all writes of this process share."""
    threads = _thread_pool("files", load_concurrency())
    waiting: list[Future[None]] = [threads.submit(one, name) for name in names]
    wait(waiting)
    for done in waiting:
        done.result()


class Pending(Generic[_Answer]):
    """The answer of a call in a `Together` block, once the block is left."""

    def __init__(self, call: Callable[[], _Answer]) -> None:
        self._call = call
        self._answers: list[_Answer] = []

    @property
    def answer(self) -> _Answer:
        """What the call returned."""
        return self._answers[0]

    def make(self) -> None:
        """Make the call."""
        self._answers.append(self._call())


class Together:
    """Calls that do not depend on each other, made when the block is left.

    In a bucket they are made at the same time, because each of them mostly waits. In a folder they are made
    one after another: a thread would cost more than a call. A failure is raised after all of them have
    ended, and what others changed by then stays changed.
    """

    def __init__(self, place: Location) -> None:
        self._others = 0 if place.is_local else _CALL_THREADS
        self._calls: list[Pending[Any]] = []

    def add(self, call: Callable[[], _Answer]) -> Pending[_Answer]:
        """Add a call; this thread makes the first one itself."""
        added = Pending(call)
        self._calls.append(added)
        return added

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            _run_all([call.make for call in self._calls], "calls", self._others)


RunInTurn = Callable[[Sequence[Callable[[], None]]], None]
"""Makes calls one after another, in an order of its choice; each at most once."""

_in_turn: RunInTurn | None = None


@contextmanager
def take_turns(run: RunInTurn) -> Iterator[None]:
    """Let `run` make what would run at the same time, for tests that count calls or interrupt them."""
    global _in_turn  # noqa: PLW0603
    before, _in_turn = _in_turn, run
    try:
        yield
    finally:
        _in_turn = before


def _run_all(calls: Sequence[Callable[[], _Answer]], kind: str, others: int) -> list[_Answer]:
    """Return the answers in order; raises a failure after all have ended."""
    if len(calls) < 2:
        return [call() for call in calls]
    if _in_turn is not None:
        pending = [Pending(call) for call in calls]
        _in_turn([one.make for one in pending])
        return [one.answer for one in pending]
    if others == 0:
        return [call() for call in calls]
    threads = _thread_pool(kind, others)
    # Listeners to phases and progress are variables of the context.
    begun = [threads.submit(copy_context().run, call) for call in calls[1:]]
    try:
        own = _run_here(calls[0])
        for number in range(len(begun), 0, -1):
            # No thread has come to it yet. So calls can have calls of their own: none waits for a thread.
            if begun[number - 1].cancel():
                begun[number - 1] = _run_here(calls[number])
    finally:
        wait(begun)
    return [one.result() for one in (own, *begun)]


def _run_here(call: Callable[[], _Answer]) -> Future[_Answer]:
    done: Future[_Answer] = Future()
    try:
        done.set_result(call())
    except Exception as failure:  # noqa: BLE001 - raised where the answer is read
        done.set_exception(failure)
    return done


@cache
def _thread_pool(kind: str, size: int) -> ThreadPoolExecutor:
    """Threads are kept: starting one takes longer than staging a few rows.

    Tables, files and calls have threads of their own, because a table waits for its files.
    """
    return ThreadPoolExecutor(size, thread_name_prefix=f"omnigraph-{kind}")


# The threads stay with the parent.
os.register_at_fork(after_in_child=_thread_pool.cache_clear)
