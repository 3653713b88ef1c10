"""One read: the values it came with, how much it may take, and when it must stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from numbers import Real
from types import TracebackType

from omnigraph.engine.write.predicate import Bindings
from omnigraph.errors import InvalidValue, QueryCancelled, ResourceLimitExceeded
from omnigraph.lang.query.parameters import check_count
from omnigraph.lang.query.resolved import Count
from omnigraph.lang.values import Stored
from omnigraph.storage.cache_budget import memory_of_machine

MOST_ROWS_IN_FLIGHT = 200_000_000
"""Bindings of one query beyond which it is refused instead of taking the machine's memory."""
_SHARE = 8
"""One part in so many of the memory there is may be taken by rows in flight: while they are sorted, joined or
grouped, they are there two to six times."""
_BYTES = 8  # of a variable in a row


@dataclass(frozen=True, slots=True)
class Limits:
    """What a caller allows a query to take; None is no limit."""

    rows: int | None = None
    """Result rows; a query that has more fails instead of being cut."""
    seconds: float | None = None
    cancel: threading.Event | None = None
    """Set it from another thread to end the query."""
    in_flight: int = MOST_ROWS_IN_FLIGHT
    bytes_in_flight: int = field(default_factory=lambda: memory_of_machine() // _SHARE)

    @classmethod
    def of(cls, rows: int | None, seconds: float | None, cancel: threading.Event | None) -> Limits:
        """What a caller allows, mostly whatever it takes."""
        if rows is None and seconds is None and cancel is None:
            return _unlimited(memory_of_machine() // _SHARE)
        return cls(rows, seconds, cancel)

    def __post_init__(self) -> None:
        """A limit that means nothing would be one that is not kept."""
        if self.rows is not None and not (_is_number(self.rows) and self.rows >= 0 and self.rows % 1 == 0):
            raise InvalidValue(f"max_rows must be a whole number from 0 on, got {self.rows!r}")
        if self.seconds is not None and not (_is_number(self.seconds) and self.seconds >= 0):
            raise InvalidValue(f"timeout must be a number of seconds from 0 on, got {self.seconds!r}")
        if self.cancel is not None and not callable(getattr(self.cancel, "is_set", None)):
            raise InvalidValue(f"cancel must be a threading.Event, got {self.cancel!r}")


def _is_number(given: object) -> bool:
    """Whether it is a number; to Python a Boolean is one, too."""
    return isinstance(given, Real) and not isinstance(given, bool)


@cache
def _unlimited(bytes_in_flight: int) -> Limits:
    return Limits(bytes_in_flight=bytes_in_flight)


@dataclass(slots=True)
class Step:
    """Something a query did, for `explain`."""

    name: str
    detail: str
    depth: int
    rows: int | None = None
    milliseconds: float = 0.0
    how: str = ""
    """Which way was taken, where there were several."""


@dataclass(slots=True)
class Request:
    """The values, limits and clock of one query."""

    parameters: Mapping[str, Stored]
    now: int
    """The one moment that `now()` means, in milliseconds since 1970 UTC."""
    limits: Limits = field(default_factory=Limits)
    steps: list[Step] | None = None
    """What was done so far, when somebody wants to know."""
    left: bool = False
    """Whether nobody waits for it any more."""
    _started: float = field(default_factory=time.monotonic)
    _depth: int = 0

    @property
    def bindings(self) -> Bindings:
        """The values, for tests that are settled against them."""
        return Bindings(self.parameters, self.now)

    def count(self, given: Count | None) -> int | None:
        """The value of a `limit` or `offset`."""
        if given is None or isinstance(given, int):
            return given
        value = self.parameters[given.name]
        assert isinstance(value, int)
        return check_count(given.name, value)

    def check(self, rows: int = 0, width: int = 1) -> None:
        """Stop here when the caller does not want the rest, or rows of so many variables take too much."""
        limits = self.limits
        if self.left or (limits.cancel is not None and limits.cancel.is_set()):
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
        """Whether so many rows of so many variables are more than a query may have at a time."""
        limits = self.limits
        return rows > limits.in_flight or rows * width * _BYTES > limits.bytes_in_flight

    def step(self, name: str, detail: Callable[[], str] | None = None) -> AbstractContextManager[Step]:
        """Note a step and how long it took, if anybody wants to know; its caller sets the rows."""
        self.check()
        if self.steps is None:
            return _UNNOTED
        return _Noted(self, Step(name, "" if detail is None else detail(), self._depth))

    def begin(self, noted: Step) -> None:
        """Add a step; those that are added until it ends are inside of it."""
        assert self.steps is not None
        self.steps.append(noted)
        self._depth += 1

    def end(self) -> None:
        """Go back to the step around the one that was begun last."""
        self._depth -= 1


class _Noted:
    """A step that is added to those of its request, with its time."""

    def __init__(self, request: Request, noted: Step) -> None:
        self._request = request
        self._noted = noted
        self._begun = 0.0

    def __enter__(self) -> Step:
        self._request.begin(self._noted)
        self._begun = time.perf_counter()
        return self._noted

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._noted.milliseconds = (time.perf_counter() - self._begun) * 1000
        self._request.end()


class _Unnoted(Step):
    """Stands for every step that nobody wants to know of; what is set on it is forgotten."""

    __slots__ = ()

    def __enter__(self) -> Step:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


_UNNOTED = _Unnoted("", "", 0)
