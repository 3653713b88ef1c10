"""Ctrl-C where it must not break anything off in the middle: it takes effect a little later."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def postponed() -> Iterator[None]:
    """Ctrl-C takes effect when the block has ended, and a second one at once.

    Only the main thread is ever interrupted, and only where somebody in Python listens.
    """
    former = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield
        return
    came = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            former(number, frame)
        came = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        if came:
            signal.raise_signal(signal.SIGINT)
