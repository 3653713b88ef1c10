"""Counters of a server, in the text form of Prometheus.

No label names a graph or an actor: which graphs there are is known only to those whom policy lets list them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, chain

from omnigraph.server.board import Board
from omnigraph.server.numbers import Key, NumberFile, read_numbers

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
RESTARTS = "omnigraph_worker_restarts_total"

Labels = tuple[tuple[str, str], ...]
Found = Mapping[Key, float]
"""The numbers of all workers, added up."""


class Counter:
    """A number that only grows, by labels."""

    kind = "counter"

    def __init__(self, name: str, help: str, numbers: NumberFile) -> None:
        self.name, self.help = name, help
        self._numbers = numbers

    def add(self, amount: float = 1, **labels: str) -> None:
        """Count something."""
        self._numbers.add(amount, self.name, *chain.from_iterable(labels.items()))

    def lines(self, found: Found) -> Iterator[str]:
        """Render it."""
        yield from _heading(self.name, self.help, self.kind)
        for labels, value in _select(found, self.name):
            yield f"{self.name}{_labels(labels)} {_number(value)}"


class Histogram:
    """How long things took, by labels."""

    def __init__(self, name: str, help: str, numbers: NumberFile) -> None:
        self.name, self.help = name, help
        self._numbers = numbers

    def observe(self, seconds: float, **labels: str) -> None:
        """Count a duration."""
        key = tuple(chain.from_iterable(labels.items()))
        self._numbers.add(1, f"{self.name}_bucket", *key, "le", _BOUNDS[bisect_left(BUCKETS, seconds)])
        self._numbers.add(seconds, f"{self.name}_sum", *key)

    def lines(self, found: Found) -> Iterator[str]:
        """Render it."""
        yield from _heading(self.name, self.help, "histogram")
        counted = dict(_select(found, f"{self.name}_bucket"))
        for labels, total in _select(found, f"{self.name}_sum"):
            running = list(accumulate(int(counted.get((*labels, ("le", le)), 0)) for le in _BOUNDS))
            for bound, count in zip(_BOUNDS, running, strict=True):
                yield f"{self.name}_bucket{_labels((*labels, ('le', bound)))} {count}"
            yield f"{self.name}_sum{_labels(labels)} {_number(total)}"
            yield f"{self.name}_count{_labels(labels)} {running[-1]}"


class Gauge(Counter):
    """Numbers that are true now, by the value of one label; those of all workers are added up."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        help: str,
        numbers: NumberFile,
        read: Callable[[], Mapping[str, float]],
        label: str = "",
    ) -> None:
        super().__init__(name, help, numbers)
        self._read, self._label = read, label

    def share(self) -> None:
        """Write what is true now, for other workers to see."""
        for value, number in self._read().items():
            self._numbers.set(number, self.name, *((self._label, value) if self._label else ()))


class Metrics:
    """All counters of one server: this worker writes its own, and renders the sums over all workers."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._counted = counted = NumberFile(board.counters)
        self._current = NumberFile(board.gauges)
        self.requests = Counter("omnigraph_http_requests_total", "Answered requests.", counted)
        self.seconds = Histogram(
            "omnigraph_http_request_seconds", "Time from a request to its answer.", counted
        )
        self.phases = Counter("omnigraph_http_phase_seconds_total", "Time of requests by phase.", counted)
        self.engine_phases = Counter(
            "omnigraph_phase_seconds_total", "Time of the engine by phase; phases may be nested.", counted
        )
        self.recoveries = Counter(
            "omnigraph_recoveries_total", "Interrupted writes that were rolled forward or back.", counted
        )
        self.rows = Counter("omnigraph_rows_total", "Rows that queries returned.", counted)
        self.commits = Counter("omnigraph_commits_total", "Commits that requests made.", counted)
        self.conflicts = Counter(
            "omnigraph_conflicts_total", "Requests that lost to another change, by code.", counted
        )
        self.blocked = Counter(
            "omnigraph_recovery_required_total", "Requests that an interrupted write blocked.", counted
        )
        self.disconnects = Counter(
            "omnigraph_http_disconnects_total", "Requests whose client went away.", counted
        )
        self.reloads = Counter(
            "omnigraph_reloads_total", "Newer revisions of a cluster, by outcome.", counted
        )
        self.restarts = Counter(RESTARTS, "Workers that ended and were replaced.", counted)
        self._gauges: list[Gauge] = []

    def watch(self, name: str, help: str, read: Callable[[], Mapping[str, float]], label: str = "") -> None:
        """Add numbers that are true while this worker runs."""
        self._gauges.append(Gauge(name, help, self._current, read, label))

    def share(self) -> None:
        """Write the gauges of this worker, if there are others that may render them."""
        if self._board.count > 1:
            self._share()

    def _share(self) -> None:
        for gauge in self._gauges:
            gauge.share()

    def render(self) -> str:
        """Return the numbers of all workers as text."""
        self._share()
        board = self._board
        found = _add_up(read_numbers(path) for path in (*board.all_counters(), *board.all_gauges()))
        counters: tuple[Counter | Histogram, ...] = (
            self.requests,
            self.seconds,
            self.phases,
            self.engine_phases,
            self.recoveries,
            self.rows,
            self.commits,
            self.conflicts,
            self.blocked,
            self.disconnects,
            self.reloads,
            self.restarts,
            *self._gauges,
        )
        return "".join(f"{line}\n" for counter in counters for line in counter.lines(found))

    def close(self) -> None:
        """Let go of the files; the counters stay."""
        self._counted.close()
        self._current.close()


def _add_up(files: Iterator[Mapping[Key, float]]) -> Found:
    sums: defaultdict[Key, float] = defaultdict(float)
    for numbers in files:
        for key, value in numbers.items():
            sums[key] += value
    return sums


def _select(found: Found, name: str) -> Iterator[tuple[Labels, float]]:
    """Yield the labels and values of one name, in the order in which they were first counted."""
    for key, value in found.items():
        if key[0] == name:
            yield tuple(zip(key[1::2], key[2::2], strict=True)), value


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


_BOUNDS = (*map(_number, BUCKETS), "+Inf")
