"""Guards that turn a hang or a flood of memory into a failure."""

from __future__ import annotations

import gc
import signal
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def hang_guard(seconds: float = 1) -> Iterator[None]:
    """Fail when the block takes more than this much of the process's own time.

    Garbage is not collected meanwhile: after thousands of examples that alone can take a second, and
    it would be blamed on the block.
    """

    def give_up(*_: object) -> None:
        raise AssertionError(f"longer than {seconds} s")

    collecting = gc.isenabled()
    gc.disable()
    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        if collecting:
            gc.enable()


@contextmanager
def memory_guard(megabytes: int) -> Iterator[None]:
    """Fail when the block allocates more than this at its peak; slows the block down."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= megabytes * 1024 * 1024, f"{peak / 1024 / 1024:.0f} MB"
