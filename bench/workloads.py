"""The workloads of the scoreboard, and smaller benchmarks besides: what each is, and how one is run."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.measure import Figure, Result
from bench.targets import find_unmeasured, target_of


@dataclass(frozen=True, slots=True)
class Workload:
    """What is measured, by which function of which module."""

    name: str
    word: str
    """The other name it can be asked for by."""
    title: str
    proof: str
    """What was found equal before a number counts."""
    module: str
    function: str = "run"

    def run(self, size: str) -> Result:
        """Measure it, in this process."""
        result: Result = getattr(importlib.import_module(self.module), self.function)(size)
        return result


_ROWS = "All parties stored equally many rows."
BOARD = (
    Workload("W1", "loads", "Loading persons with keys and edges with looked-up ends", _ROWS, "bench.loads"),
    Workload(
        "W2",
        "questions",
        "The nine questions of the public graph-benchmark",
        "All parties gave the same rows to every question.",
        "bench.reads_social",
        "questions",
    ),
    Workload(
        "W3",
        "hops",
        "Distinct neighbours within one to three hops, and one person by key",
        "All parties gave the same rows for every person asked about.",
        "bench.reads_social",
        "hops",
    ),
    Workload("W4", "writes", "One-row inserts, by the commits before them", _ROWS, "bench.writes"),
    Workload(
        "W5",
        "forks",
        "A branch, one write to it, and its deletion, by the number of types",
        "In the end no branch was left, and main had the rows it had.",
        "bench.forks",
    ),
    Workload(
        "W6",
        "merges",
        "Merges, by the rows changed and by the rows there are",
        "All parties had the same number of people and the same sum of their ages.",
        "bench.merges",
    ),
    Workload(
        "W7",
        "diffs",
        "Diffs of one changed row",
        "All parties showed the same values before and after, each time.",
        "bench.diffs",
    ),
    Workload(
        "W8",
        "documents",
        "Searches by vector and text, fused, with a hop",
        "The answers were held against a look at every document; the recall is among the figures.",
        "bench.reads_documents",
    ),
    Workload(
        "W10",
        "bulk",
        "Many edges with ids of their own, from Parquet into a branch",
        "Every edge was there, by one commit.",
        "bench.bulk",
    ),
)
OTHERS = (
    Workload(
        "compile",
        "compile",
        "A query text becomes a plan",
        "The cache gave what compiling gave.",
        "bench.compile",
    ),
    Workload(
        "publish",
        "publish",
        "A publish, by the commits before it",
        "Every publish was there.",
        "bench.publish",
    ),
    Workload(
        "threads",
        "threads",
        "Sixteen threads that insert into one branch",
        "Every insert was there.",
        "bench.threads",
    ),
    Workload(
        "bucket",
        "bucket",
        "Small operations in a bucket that is 20 ms away, and sixteen writers",
        "Every row was there.",
        "bench.bucket",
    ),
)
GROUPS = {"reads": ("W2", "W3", "W8")}
KNOWN: Mapping[str, Workload] = {one.name: one for one in (*BOARD, *OTHERS)}


def find_workloads(word: str) -> tuple[Workload, ...]:
    """The workloads that somebody means; nothing where there are none."""
    if word in GROUPS:
        return tuple(KNOWN[name] for name in GROUPS[word])
    return tuple(one for one in KNOWN.values() if word.lower() in (one.name.lower(), one.word))


def words() -> list[str]:
    """All names that can be asked for."""
    return [*KNOWN, *(one.word for one in BOARD), *GROUPS]


def record(workload: Workload, size: str) -> dict[str, Any]:
    """Measure a workload in this process, and tell what came of it as plain values."""
    result = workload.run(size)
    figures = result.all_figures()
    return {
        **result.to_json(),
        "figures": list(_judge(workload.name, figures)),
        "noise": result.noise(),
        "unmeasured": [asdict(target) for target in find_unmeasured(workload.name, figures)],
    }


def _judge(workload: str, figures: list[Figure]) -> Iterator[dict[str, Any]]:
    for figure in figures:
        target = target_of(workload, figure)
        yield {
            **asdict(figure),
            "at_most": target.at_most if target else None,
            "at_least": target.at_least if target else None,
            "met": target.met(figure) if target else None,
        }


if __name__ == "__main__":
    # In the process of one workload: its name, the size, and where to put what was found.
    _name, _size, _to = sys.argv[1:]
    Path(_to).write_text(json.dumps(record(KNOWN[_name], _size)), encoding="utf-8")
