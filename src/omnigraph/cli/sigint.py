"""What Ctrl-C does: while the command is being imported it exits silently, later it raises KeyboardInterrupt.

During the imports there is nothing to report or undo. This module imports next to nothing, so that the first
handler is set as early as possible.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

INTERRUPTED = 130


def exit_on_interrupt() -> None:
    """Let Ctrl-C end the process silently."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, as in the background
        signal.signal(signal.SIGINT, _exit_silently)


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise an exception, as usual: from now on there may be something to clean up."""
    if signal.getsignal(signal.SIGINT) is _exit_silently:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit_silently(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
