"""How many tables, and how many files, a write stages at the same time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import TypeVar

from omnigraph.errors import BadRequest

SETTING = "OMNIGRAPH_LOAD_CONCURRENCY"
DEFAULT = 8

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

    Raises the first failure after all of them have ended: no thread works for a write that was given up.
    """
    others = load_concurrency() - 1
    if others == 0 or len(tables) < 2:
        return [one(table) for table in tables]
    threads = _thread_pool("tables", others)
    first, begun = tables[0], [threads.submit(one, table) for table in tables[1:]]
    try:
        own = {0: one(first)}
        for number in range(len(tables) - 1, 0, -1):
            if begun[number - 1].cancel():  # no thread has come to it yet
                own[number] = one(tables[number])
        return [own[at] if at in own else begun[at - 1].result() for at in range(len(tables))]
    finally:
        wait([other for other in begun if not other.cancelled()])


def run_per_file(one: Callable[[str], None], names: Sequence[str]) -> None:
    """Do something for each file, in threads that all tables of all writes of this process share."""
    threads = _thread_pool("files", load_concurrency())
    waiting: list[Future[None]] = [threads.submit(one, name) for name in names]
    wait(waiting)
    for done in waiting:
        done.result()


@cache
def _thread_pool(kind: str, size: int) -> ThreadPoolExecutor:
    """Threads are kept: starting one takes longer than staging a few rows.

    Tables and files have threads of their own, because a table waits for its files.
    """
    return ThreadPoolExecutor(size, thread_name_prefix=f"omnigraph-{kind}")


# The threads stay with the parent.
os.register_at_fork(after_in_child=_thread_pool.cache_clear)
