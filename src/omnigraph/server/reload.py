"""`--reload`: watch the ledger of a cluster, and serve a newer applied revision without dropping a request.

A revision that cannot be served is logged, and the one before stays; so does it when a graph that is served
now would be left out. Both are tried again later: an apply may be under way.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.server.boot import Booted
from omnigraph.server.cluster_source import ClusterSource
from omnigraph.server.revisions import Revisions
from omnigraph.server.sources import ServingPlan, save_plan

LONGEST_PAUSE = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reload:
    """How a revision is replaced by the next."""

    source: ClusterSource
    open: Callable[[ServingPlan], Booted]
    folder: Path
    """Where workers keep what they serve, for one that replaces another."""
    seconds: float
    """How long to wait between two looks at the ledger."""
    count: Callable[[str], None]
    """Counts a revision that was served or refused."""


class LedgerWatch:
    """A thread that looks at the ledger; a context manager that ends it."""

    def __init__(self, how: Reload, revisions: Revisions) -> None:
        self._how = how
        self._revisions = revisions
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="omnigraph reload", daemon=True)
        self._seen: str | None = None
        self._pause = how.seconds
        self._retry_at = 0.0
        self._reported: str | None = None

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._how.seconds):
            self.look()

    def look(self) -> None:
        """Serve a newer revision, if there is one and it can be served."""
        try:
            mark = self._how.source.read_mark()
            if mark == self._seen and time.monotonic() < self._retry_at:
                return
            self._pause = self._how.seconds if mark != self._seen else min(2 * self._pause, LONGEST_PAUSE)
            self._seen = mark
            is_settled = self._try_newer()
        except Exception as error:  # noqa: BLE001 - reported, and tried again: the thread must not end
            self._report(
                error.message if isinstance(error, OmnigraphError) else f"{type(error).__name__}: {error}"
            )
            is_settled = False
        self._retry_at = float("inf") if is_settled else time.monotonic() + self._pause

    def _try_newer(self) -> bool:
        """Return whether all that was applied is served now."""
        plan, current = self._how.source.load(), self._revisions.current
        if plan == current.plan and current.is_whole:
            return True
        booted = self._how.open(plan)
        lost = sorted(_graph_ids(plan) & set(current.graphs) - set(booted.graphs))
        if lost:
            booted.close()
            self._report(f"it would leave out {', '.join(lost)}")
            return False
        if plan == current.plan and set(booted.graphs) == set(current.graphs):
            booted.close()
            return False
        try:
            save_plan(self._how.folder, plan)
        except OSError:
            booted.close()
            raise
        self._revisions.swap(booted)
        self._reported = None
        self._how.count("served")
        _log.info("reloaded", extra={"facts": {"graphs": len(booted.graphs), "mode": booted.state.value}})
        return booted.is_whole

    def _report(self, reason: str) -> None:
        if reason != self._reported:
            self._how.count("refused")
            _log.error("the newest revision of the cluster is not served, the one before stays: %s", reason)
        self._reported = reason


def _graph_ids(plan: ServingPlan) -> set[str]:
    return {one.graph_id for one in plan.graphs} | {one.graph_id for one in plan.left_out}
