"""One read: its parameter values, its limits, when it must stop, and its steps for `explain`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from functools import cache
from numbers import Real
from types import TracebackType
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.rows.predicate import Bindings
from omnigraph.errors import InvalidValue, QueryCancelled, ResourceLimitExceeded
from omnigraph.lang.query.parameters import check_count
from omnigraph.lang.query.resolved import Count
from omnigraph.lang.values import Stored
from omnigraph.phases import PhaseListener, current_listener
from omnigraph.storage.cache_budget import machine_memory

MAX_ROWS_IN_FLIGHT = 200_000_000
"""A query with more rows in flight is refused instead of using up the machine's memory."""
_SHARE = 8
"""Rows in flight may take 1 / _SHARE of the machine's memory: sorting, joining or grouping copies them two to
six times."""
_BYTES = 8  # of a variable in a row


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits a caller sets for a query; None is no limit."""

    rows: int | None = None
    """Result rows; a query with more fails instead of being truncated."""
    seconds: float | None = None
    cancel: threading.Event | None = None
    """Set it from another thread to end the query."""
    in_flight: int = MAX_ROWS_IN_FLIGHT
    bytes_in_flight: int = field(default_factory=lambda: machine_memory() // _SHARE)

    @classmethod
    def of(cls, rows: int | None, seconds: float | None, cancel: threading.Event | None) -> Limits:
        """Return limits for these arguments; without any, a shared object."""
        if rows is None and seconds is None and cancel is None:
            return _default_limits(machine_memory() // _SHARE)
        return cls(rows, seconds, cancel)

    def __post_init__(self) -> None:
        """Refuse limits that mean nothing: they would be ignored silently."""
        if self.rows is not None and not (_is_number(self.rows) and self.rows >= 0 and self.rows % 1 == 0):
            raise InvalidValue(f"max_rows must be a whole number from 0 on, got {self.rows!r}")
        if self.seconds is not None and not (_is_number(self.seconds) and self.seconds >= 0):
            raise InvalidValue(f"timeout must be a number of seconds from 0 on, got {self.seconds!r}")
        if self.cancel is not None and not callable(getattr(self.cancel, "is_set", None)):
            raise InvalidValue(f"cancel must be a threading.Event, got {self.cancel!r}")


def _is_number(given: object) -> bool:
    """Whether it is a number; unlike Python, a Boolean is none."""
    return isinstance(given, Real) and not isinstance(given, bool)


@cache
def _default_limits(bytes_in_flight: int) -> Limits:
    return Limits(bytes_in_flight=bytes_in_flight)


@dataclass(slots=True)
class QueryStep:
    """A step of a query, for `explain`."""

    name: str
    detail: str
    depth: int
    rows: int | None = None
    milliseconds: float = 0.0
    how: str = ""
    """Which strategy was used, where there are several."""


@dataclass(slots=True)
class Request:
    """The values, limits and clock of one query."""

    parameters: Mapping[str, Stored]
    now: int
    """The time that `now()` means, in milliseconds since 1970 UTC."""
    limits: Limits = field(default_factory=Limits)
    steps: list[QueryStep] | None = None
    """The steps so far, when they are recorded for `explain`."""
    abandoned: bool = False
    """Whether the caller stopped waiting for it."""
    _started: float = field(default_factory=time.monotonic)
    _depth: int = 0
    # Taken where the query begins: its steps may run in other threads.
    _listener: PhaseListener | None = field(default_factory=current_listener)

    @property
    def bindings(self) -> Bindings:
        """The values, to bind in tests."""
        return Bindings(self.parameters, self.now)

    def count(self, given: Count | None) -> int | None:
        """The value of a `limit` or `offset`."""
        if given is None or isinstance(given, int):
            return given
        value = self.parameters[given.name]
        assert isinstance(value, int)
        return check_count(given.name, value)

    def check(self, rows: int = 0, width: int = 1) -> None:
        """Raise when the query was cancelled, timed out, or has too many rows of `width` variables."""
        limits = self.limits
        if self.abandoned or (limits.cancel is not None and limits.cancel.is_set()):
            raise QueryCancelled("query was cancelled")
        if limits.seconds is not None and time.monotonic() - self._started >= limits.seconds:
            raise QueryCancelled(f"query took longer than {limits.seconds:g} s and was stopped")
        if self.is_too_much(rows, width):
            by_rows = rows > limits.in_flight
            raise ResourceLimitExceeded(
                "rows in flight" if by_rows else "bytes of rows in flight",
                limit=limits.in_flight if by_rows else limits.bytes_in_flight,
                actual=rows if by_rows else rows * width * _BYTES,
                remedy="connect the variables by traversals or filters, or ask for less at a time",
            )

    def is_too_much(self, rows: int, width: int = 1) -> bool:
        """Whether this many rows of `width` variables exceed the limits on rows in flight."""
        limits = self.limits
        return rows > limits.in_flight or rows * width * _BYTES > limits.bytes_in_flight

    def step(self, name: str, detail: Callable[[], str] | None = None) -> AbstractContextManager[QueryStep]:
        """Record a step with its time, if steps are recorded; the caller sets its rows."""
        self.check()
        if self.steps is None:
            return _IGNORED if self._listener is None else _ReportedStep(self._listener(f"query.{name}"))
        return _TimedStep(self, QueryStep(name, "" if detail is None else detail(), self._depth))

    def begin(self, step: QueryStep) -> None:
        """Add a step; steps added before it ends are nested in it."""
        assert self.steps is not None
        self.steps.append(step)
        self._depth += 1

    def end(self) -> None:
        """End the step that was begun last."""
        self._depth -= 1


class _TimedStep:
    """Records a step and its time."""

    def __init__(self, request: Request, step: QueryStep) -> None:
        self._request = request
        self._step = step
        self._begun = 0.0

    def __enter__(self) -> QueryStep:
        self._request.begin(self._step)
        self._begun = time.perf_counter()
        return self._step

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._step.milliseconds = (time.perf_counter() - self._begun) * 1000
        self._request.end()


class _ReportedStep:
    """Reports a step as a phase."""

    def __init__(self, phase: AbstractContextManager[object]) -> None:
        self._phase = phase

    def __enter__(self) -> QueryStep:
        self._phase.__enter__()
        return _IGNORED

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._phase.__exit__(kind, error, trace)


class _IgnoredStep(QueryStep):
    """Stands for every step when none are recorded; ignores what is set on it."""

    __slots__ = ()

    def __enter__(self) -> QueryStep:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


_IGNORED = _IgnoredStep("", "", 0)


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The steps of a query in the order they ran, with the rows each gave and how long it took.

    The time of a step includes that of the steps inside it.
    """

    query_name: str
    steps: tuple[QueryStep, ...]
    rows: int
    milliseconds: float

    def text(self) -> str:
        """The steps as a table."""
        lines = [_format_step(step) for step in self.steps]
        width = max((len(line) for line in lines), default=0)
        body = [
            f"{line:<{width}}  {'' if step.rows is None else step.rows:>10}  {step.milliseconds:>9.2f} ms"
            for line, step in zip(lines, self.steps, strict=True)
        ]
        total = f"{self.rows} {'row' if self.rows == 1 else 'rows'} in {self.milliseconds:.2f} ms"
        return "\n".join([f"{self.query_name}", *body, total])

    def to_json(self) -> dict[str, Any]:
        """The steps as a script reads them."""
        return {
            "query_name": self.query_name,
            "steps": [
                {
                    "step": step.name,
                    "detail": step.detail,
                    "how": step.how,
                    "rows": step.rows,
                    "milliseconds": round(step.milliseconds, 3),
                    "depth": step.depth,
                }
                for step in self.steps
            ],
            "rows": self.rows,
            "milliseconds": round(self.milliseconds, 3),
        }

    def __repr__(self) -> str:
        return self.text()


def _format_step(step: QueryStep) -> str:
    detail = f" {step.detail}" if step.detail else ""
    how = f" ({step.how})" if step.how else ""
    return f"{'  ' * step.depth}{step.name}{detail}{how}"
