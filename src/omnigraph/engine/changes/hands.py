"""Who compares the rows of two moments, told from how many they are."""

from __future__ import annotations

from omnigraph.engine.changes.meeting import Meeting
from omnigraph.engine.load.engines import engine_for
from omnigraph.engine.load.runner import LocalRunner, Runner

LARGE = 1_000_000
"""Beyond so many changed rows of a type, its changes are worked out in buckets, by tasks."""

BYTES_PER_ROW = 100
"""What a changed row is taken for where engines are chosen by the size of their input."""


class Hands:
    """The engine that was asked for; another process is only started once it is needed."""

    def __init__(self, engine: str = "local") -> None:
        self._engine = engine
        self._found: Runner | None = None
        if engine not in ("auto", "local", "spark"):
            engine_for(engine, 0)

    def runner(self, *meetings: Meeting) -> Runner | None:
        """Who does it in tasks; None when this process does it at once, in memory."""
        if self._engine not in ("auto", "local"):
            return self._other(0)
        rows = 0
        for counted in (Meeting.most, Meeting.rows, Meeting.written):
            rows = sum(counted(one) for one in meetings)
            if rows <= LARGE:
                return None
        return LocalRunner() if self._engine == "local" else self._other(rows)

    def _other(self, rows: int) -> Runner:
        if self._found is None:
            found = engine_for(self._engine, rows * BYTES_PER_ROW)
            self._found = LocalRunner() if found is None else found.runner
        return self._found
