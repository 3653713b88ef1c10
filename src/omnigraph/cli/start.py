"""How the `omnigraph` command begins: while it is only being imported, Ctrl-C ends it without a word.

Nothing is under way then that would have to be told or undone. The module itself imports next to nothing,
so that this holds from the first moment.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130


def command() -> int:
    """The `omnigraph` command: a process of our own."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as in the background
        signal.signal(signal.SIGINT, _leave)
    from omnigraph.cli.main import command as run

    return run()


def begin_work() -> None:
    """From now on Ctrl-C is an exception, as usual: there may be something to end in order."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
