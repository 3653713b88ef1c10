"""Which runner compares two snapshots: this process, or tasks when many rows changed."""

from __future__ import annotations

from omnigraph.engine.changes.comparison import TableComparison
from omnigraph.engine.tasks.engines import select_engine
from omnigraph.engine.tasks.runner import LocalRunner, Runner

LARGE_CHANGE = 1_000_000
"""Above this number of changed rows, a type is compared in buckets, by tasks."""

BYTES_PER_ROW = 100
"""The assumed size of a changed row, for engines chosen by input size."""


class RunnerChoice:
    """The requested engine; another process is only started when it is needed."""

    def __init__(self, engine: str = "local") -> None:
        self._engine = engine
        self._runner: Runner | None = None
        if engine not in ("auto", "local", "spark"):
            select_engine(engine, 0)

    def choose_runner(self, *comparisons: TableComparison) -> Runner | None:
        """Return the runner for tasks; None when this process compares everything in memory."""
        if self._engine not in ("auto", "local"):
            return self._engine_runner(0)
        rows = 0
        for count in (
            TableComparison.max_rows,
            TableComparison.estimate_rows,
            TableComparison.count_written_rows,
        ):
            rows = sum(count(one) for one in comparisons)
            if rows <= LARGE_CHANGE:
                return None
        return LocalRunner() if self._engine == "local" else self._engine_runner(rows)

    def _engine_runner(self, rows: int) -> Runner:
        if self._runner is None:
            found = select_engine(self._engine, rows * BYTES_PER_ROW)
            self._runner = LocalRunner() if found is None else found.runner
        return self._runner
