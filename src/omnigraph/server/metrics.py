"""Counters of a server, in the text form of Prometheus.

No label names a graph or an actor: which graphs there are is known only to those whom policy lets list them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

Labels = tuple[tuple[str, str], ...]


class Counter:
    """A number that only grows, by labels."""

    def __init__(self, name: str, help: str) -> None:
        self.name, self.help = name, help
        self._values: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def add(self, amount: float = 1, **labels: str) -> None:
        """Count something."""
        key = tuple(labels.items())
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def lines(self) -> Iterator[str]:
        """Render it."""
        yield from _heading(self.name, self.help, "counter")
        with self._lock:
            found = list(self._values.items())
        for labels, value in found:
            yield f"{self.name}{_labels(labels)} {_number(value)}"


class Histogram:
    """How long things took, by labels."""

    def __init__(self, name: str, help: str) -> None:
        self.name, self.help = name, help
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def observe(self, seconds: float, **labels: str) -> None:
        """Count a duration."""
        key = tuple(labels.items())
        with self._lock:
            counts = self._counts.setdefault(key, [0] * (len(BUCKETS) + 1))
            counts[bisect_left(BUCKETS, seconds)] += 1
            self._sums[key] = self._sums.get(key, 0) + seconds

    def lines(self) -> Iterator[str]:
        """Render it."""
        yield from _heading(self.name, self.help, "histogram")
        with self._lock:
            found = [(key, list(counts), self._sums[key]) for key, counts in self._counts.items()]
        for labels, counts, total in found:
            running = list(accumulate(counts))
            for bound, count in zip((*map(_number, BUCKETS), "+Inf"), running, strict=True):
                yield f"{self.name}_bucket{_labels((*labels, ('le', bound)))} {count}"
            yield f"{self.name}_sum{_labels(labels)} {_number(total)}"
            yield f"{self.name}_count{_labels(labels)} {running[-1]}"


class Gauge:
    """Numbers that are asked for when somebody looks, by the value of one label."""

    def __init__(
        self, name: str, help: str, read: Callable[[], Mapping[str, float]], label: str = ""
    ) -> None:
        self.name, self.help = name, help
        self._read, self._label = read, label

    def lines(self) -> Iterator[str]:
        """Render it."""
        yield from _heading(self.name, self.help, "gauge")
        for value, number in self._read().items():
            labels = _labels(((self._label, value),)) if self._label else ""
            yield f"{self.name}{labels} {_number(number)}"


class Metrics:
    """All counters of one server."""

    def __init__(self) -> None:
        self.requests = Counter("omnigraph_http_requests_total", "Answered requests.")
        self.seconds = Histogram("omnigraph_http_request_seconds", "Time from a request to its answer.")
        self.phases = Counter("omnigraph_http_phase_seconds_total", "Time of requests by phase.")
        self.rows = Counter("omnigraph_rows_total", "Rows that queries returned.")
        self.commits = Counter("omnigraph_commits_total", "Commits that requests made.")
        self.conflicts = Counter(
            "omnigraph_conflicts_total", "Requests that lost to another change, by code."
        )
        self.recoveries = Counter(
            "omnigraph_recovery_required_total", "Requests that an interrupted write blocked."
        )
        self.disconnects = Counter("omnigraph_http_disconnects_total", "Requests whose client went away.")
        self._gauges: list[Gauge] = []

    def watch(self, gauge: Gauge) -> None:
        """Add numbers that are read when somebody looks."""
        self._gauges.append(gauge)

    def render(self) -> str:
        """Return all counters as text."""
        counters: tuple[Counter | Histogram | Gauge, ...] = (
            self.requests,
            self.seconds,
            self.phases,
            self.rows,
            self.commits,
            self.conflicts,
            self.recoveries,
            self.disconnects,
            *self._gauges,
        )
        return "".join(f"{line}\n" for counter in counters for line in counter.lines())


def _heading(name: str, help: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    inner = ",".join(f'{name}="{_escape(value)}"' for name, value in labels)
    return f"{{{inner}}}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return f"{value:g}" if value < 1e6 else repr(float(value)).removesuffix(".0")
