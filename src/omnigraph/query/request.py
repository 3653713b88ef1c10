"""One read: the values it came with, how much it may take, and when it must stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from omnigraph.errors import InvalidValue, QueryCancelled, ResourceLimitExceeded
from omnigraph.lang.query.parameters import check_count
from omnigraph.lang.query.resolved import Count
from omnigraph.lang.values import Stored
from omnigraph.query.memory import memory_of_machine

MOST_ROWS_IN_FLIGHT = 200_000_000
"""Bindings of one query beyond which it is refused instead of taking the machine's memory."""
_SHARE = 2  # one part in so many of the memory there is may be taken by rows in flight
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

    def __post_init__(self) -> None:
        """A limit that means nothing would be one that is not kept."""
        for name, given in (("max_rows", self.rows), ("timeout", self.seconds)):
            if given is not None and not given >= 0:  # nor is NaN
                raise InvalidValue(f"{name} must be a number from 0 on, got {given}")


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
    _started: float = field(default_factory=time.monotonic)
    _depth: int = 0

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
        if limits.cancel is not None and limits.cancel.is_set():
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

    @contextmanager
    def step(self, name: str, detail: str = "") -> Iterator[Step]:
        """Note a step and how long it took; its caller sets the rows."""
        self.check()
        noted = Step(name, detail, self._depth)
        if self.steps is None:
            yield noted
            return
        self.steps.append(noted)
        self._depth += 1
        begun = time.perf_counter()
        try:
            yield noted
        finally:
            noted.milliseconds = (time.perf_counter() - begun) * 1000
            self._depth -= 1
