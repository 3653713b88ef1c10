"""What the engine does for one request: seconds by phase for the counters, and a span for each in a trace."""

from __future__ import annotations

import time
from types import TracebackType

from omnigraph.phases import RECOVERED
from omnigraph.server.tracing import RequestSpan


class EnginePhases:
    """Listens to phases; steps of one request may end in another thread, but not at the same time."""

    def __init__(self, span: RequestSpan | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.recoveries = 0
        """Interrupted writes that were recovered."""
        self.span = span

    def __call__(self, name: str) -> _Phase:
        """Return what measures one phase."""
        return _Phase(self, name)


class _Phase:
    __slots__ = ("_begun", "_listener", "_name", "_span")

    def __init__(self, listener: EnginePhases, name: str) -> None:
        self._listener, self._name = listener, name

    def __enter__(self) -> None:
        span = self._listener.span
        self._span = None if span is None else span.begin_phase(self._name)
        self._begun = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds, listener = time.perf_counter() - self._begun, self._listener
        listener.seconds[self._name] = listener.seconds.get(self._name, 0.0) + seconds
        if self._name == RECOVERED and error is None:
            listener.recoveries += 1
        if self._span is not None and listener.span is not None:
            listener.span.end_phase(self._span, error)
