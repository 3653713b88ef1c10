"""What we have set ourselves, in one table: the most, or the least, that a figure may be.

A figure is ours divided by the other, on a fresh graph and, where there is one, on an aged graph; the worse
of both counts. Targets are stated for the whole size; a quick run is held to them as well, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from bench.measure import FRESH_GRAPH, Figure

FLAT = 1.3
"""How far apart may be what should cost the same, wherever a cost is not to grow."""


@dataclass(frozen=True, slots=True)
class Target:
    """A limit of some figures of one workload; `what` and `against` may have `*` in them."""

    workload: str
    what: str
    against: str
    at_most: float | None = None
    at_least: float | None = None

    def covers(self, workload: str, figure: Figure) -> bool:
        """Whether the figure is held to it."""
        return (
            workload == self.workload
            and fnmatchcase(figure.what, self.what)
            and fnmatchcase(figure.against, self.against)
        )

    def met(self, figure: Figure) -> bool:
        """Whether the figure keeps it; nothing is rounded."""
        if self.at_least is not None:
            return figure.fresh >= self.at_least
        return self.at_most is not None and figure.worst <= self.at_most


TARGETS = (
    # Loads: at most the time of a native database's own copy, a tenth of the rate of writing without checks,
    # twice the rate of a script, and 0.6 of the rate of lenient reading.
    Target("W1", "Parquet, on Spark", "ladybug", 1.0),
    Target("W1", "Parquet, on Spark", "lance, ready rows", 10.0),
    Target("W1", "NDJSON, on Spark", "script", 0.5),
    Target("W1", "NDJSON, on Spark", "duckdb", 1 / 0.6),
    # The nine questions: twice as fast as a native database, the first five times.
    Target("W2", "warm: geometric mean", "ladybug", 0.5),
    Target("W2", "warm: q1 *", "ladybug", 0.2),
    Target("W2", "warm: q8 *", "ladybug", 0.5),
    # Ten million rows must not be there twice.
    Target("W2", "memory: *", "the size of the result", 2.0),
    # Hops and points.
    Target("W3", "warm: * hops, *", "ladybug", 1.0),
    Target("W3", "warm: one person by key", "ladybug", 1.0),
    Target("W3", "first of a process: * hops, *", "ladybug", 2.0),
    # Writes do not grow with the history.
    Target("W4", "one row into *", FRESH_GRAPH, FLAT),
    Target("W4", "one row into *", "bare calls", 1.5),
    # Work on a branch does not grow with the number of types.
    Target("W5", "create, write and delete", "omnigraph, 2 types", FLAT),
    # Merges follow the change and not the table.
    Target("W6", "both sides changed, 1,000 rows", "doltlite", 15.0),
    Target("W6", "*", "as many times the rows, *", 1.0),
    Target("W6", "*", "a tenth of the table", FLAT),
    # A diff of one row.
    Target("W7", "*", "30 ms, or doltlite's time if that is longer", 1.0),
    Target("W7", "*", "a tenth of the table", FLAT),
    # Search with fusion and a hop, beside the two searches alone; and all of it with enough recall.
    Target("W8", "ours: both, fused, one hop; theirs: both searches only", "lancedb", 1.2),
    Target("W8", "recall of the best ten, *", "a look at everything", at_least=0.98),
    # Many edges with ids of their own; memory follows the tasks and not the input.
    Target("W10", "* edges, *", "Spark copies Parquet", 1.5),
    Target("W10", "memory, total, *", "half the edges", FLAT),
    Target("compile", "compile", "1 ms", 1.0),
)


def target_of(workload: str, figure: Figure) -> Target | None:
    """The limit of a figure, if it has one."""
    return next((target for target in TARGETS if target.covers(workload, figure)), None)


def find_unmeasured(workload: str, figures: Iterable[Figure]) -> Iterator[Target]:
    """The targets of a workload that no figure tells about."""
    found = list(figures)
    for target in TARGETS:
        if target.workload == workload and not any(target.covers(workload, one) for one in found):
            yield target
