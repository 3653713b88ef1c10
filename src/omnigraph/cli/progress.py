"""Progress of a command on standard error: a bar on a terminal, lines in a log, events for a script."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.output import print_note
from omnigraph.errors import StorageFailure
from omnigraph.progress import Progress, ProgressEvent, ProgressListener, progress_to

SECONDS_BETWEEN_LINES = 5.0
SECONDS_BETWEEN_EVENTS = 1.0
PATIENCE = 5.0
"""A log gets no lines of a command that takes no longer."""

_FULL = 1000


@contextmanager
def show_progress(*, as_json: bool) -> Iterator[None]:
    """Show the progress of the block: a bar on a terminal, otherwise lines or JSON events."""
    invocation = current_invocation()
    if "--quiet" in invocation.flags or sys.stderr is None:
        yield
        return
    bar = _Bar()
    show: ProgressListener = bar
    if as_json:
        show = _Lines(event_line, SECONDS_BETWEEN_EVENTS, 0.0)
    elif not sys.stderr.isatty():
        show = _Lines(plain_line, SECONDS_BETWEEN_LINES, PATIENCE)

    def listen(now: Progress) -> None:
        # Checked late: a command may only now know that it must not show progress.
        if invocation.shows_progress:
            show(now)

    try:
        with progress_to(listen):
            yield
    finally:
        bar.close()


class _Lines:
    """Prints a line at the start and end of every stage, and some in between."""

    def __init__(self, form: Callable[[Progress], str], between: float, patience: float) -> None:
        self._form = form
        self._between = between
        self._begun = self._last = time.monotonic()
        self._patience = patience

    def __call__(self, now: Progress) -> None:
        moment = time.monotonic()
        if now.event is ProgressEvent.PROGRESS and moment - self._last < self._between:
            return
        if moment - self._begun < self._patience:
            return
        self._last = moment
        # A closed standard error must not end the command.
        with suppress(OSError, StorageFailure):
            print_note(self._form(now))


class _Bar:
    """One line of a terminal that shows the stage under way, and is gone with it."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, now: Progress) -> None:
        if self._bar is None:
            self._start_bar()
        share = now.share
        self._bar.update(
            self._task,
            description=now.stage,
            total=None if share is None else _FULL,
            completed=0 if share is None else round(share * _FULL),
            figures=", ".join(_format_figures(now)),
        )
        if now.event is ProgressEvent.ENDED:
            # What is printed next must not get between its lines.
            self.close()

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Display

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
        )
        self._bar = Display(
            *columns,
            console=Console(stderr=True),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=None, figures="")
        self._bar.start()

    def close(self) -> None:
        """Take it away; the next stage has one again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


# --- words ---------------------------------------------------------------------------------------


def event_line(now: Progress) -> str:
    """Progress for a script, on one line."""
    return json.dumps(now.to_json())


def plain_line(now: Progress) -> str:
    """Progress for a log."""
    figures = ", ".join(_format_figures(now))
    match now.event:
        case ProgressEvent.BEGUN:
            return f"{now.stage}: begun"
        case ProgressEvent.ENDED:
            return f"{now.stage}: done in {now.seconds:.1f} s" + (f": {figures}" if figures else "")
    return f"{now.stage}: {figures}"


def _format_figures(now: Progress) -> Iterator[str]:
    if now.tasks_done or now.tasks:
        yield f"{now.tasks_done:,} of {now.tasks:,} tasks" if now.tasks else f"{now.tasks_done:,} tasks"
    if now.share is not None and now.event is ProgressEvent.PROGRESS:
        yield f"{now.share:.0%}"
    if now.rows:
        yield f"{now.rows:,} rows ({now.rows_per_second:,.0f}/s)"
    if now.bytes:
        yield f"{_format_size(now.bytes)} ({_format_size(now.bytes_per_second)}/s)"
    if now.event is ProgressEvent.PROGRESS and now.seconds_left is not None:
        yield f"{now.seconds_left:.0f} s left"


def _format_size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
