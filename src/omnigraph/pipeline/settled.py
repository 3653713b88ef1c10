"""Less work between two tasks of a worker process."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settled() -> None:
    """Spare what a worker process has loaded by the end of its first task from every search for garbage.

    Spark has its workers search all of their memory after each task. Ours hold large packages that never
    become garbage, and looking through them takes longer than many a task.
    """
    gc.collect()
    gc.freeze()
