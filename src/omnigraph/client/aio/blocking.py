"""Work that would block the event loop, in worker threads that no cancellation leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from itertools import islice
from typing import ParamSpec, TypeVar

Value = TypeVar("Value")
Given = ParamSpec("Given")


async def run_blocking(function: Callable[Given, Value], *given: Given.args, **named: Given.kwargs) -> Value:
    """Return what a function returns in a worker thread.

    A cancelled caller waits until the thread has ended: what the thread uses can be closed afterwards.
    """
    task = asyncio.ensure_future(asyncio.to_thread(function, *given, **named))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it as lost
        raise


@asynccontextmanager
async def enter_blocking(opened: AbstractContextManager[Value]) -> AsyncIterator[Value]:
    """Enter and leave a context manager in worker threads."""
    with_opened = ExitStack()
    try:
        yield await run_blocking(with_opened.enter_context, opened)
    except BaseException as failure:
        await run_blocking(with_opened.__exit__, type(failure), failure, failure.__traceback__)
        raise
    await run_blocking(with_opened.close)


async def iterate_blocking(items: Iterable[Value]) -> AsyncIterator[Value]:
    """Yield items, each of which is made in a worker thread."""
    iterator = iter(items)
    # A thread cannot raise StopIteration into a coroutine.
    while found := await run_blocking(_take_one, iterator):
        yield found[0]


def _take_one(iterator: Iterator[Value]) -> list[Value]:
    return list(islice(iterator, 1))
