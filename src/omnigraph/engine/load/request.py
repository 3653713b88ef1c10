"""What is asked of a load, and what it did."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Protocol

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.load.sources.mapping import InputMapping
from omnigraph.engine.rows.violations import Violation
from omnigraph.engine.tasks.runner import TaskMetrics
from omnigraph.engine.upkeep.declared_indexes import PendingIndexes
from omnigraph.errors import BadRequest


@dataclass(frozen=True, slots=True)
class StageReport:
    """One step of a load."""

    name: str
    tasks: int
    seconds: float
    rows: int = 0
    bytes: int = 0

    @property
    def rows_per_second(self) -> int:
        """How fast it went; 0 where rows were not counted."""
        return round(self.rows / self.seconds) if self.seconds > 0 else 0


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What carried out a load, and why."""

    name: str
    why: str
    stages: tuple[StageReport, ...] = ()
    tasks: tuple[TaskMetrics, ...] = ()
    """What the tasks on Spark cost, stage by stage."""


@dataclass(frozen=True, slots=True, repr=False)
class LoadResult:
    """What a load did; counts are input rows by type."""

    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    commit: Commit | None
    skipped: tuple[Violation, ...] = ()
    """The first of what is wrong with rows that were left out, when that was asked for."""
    skipped_counts: Mapping[str, int] = field(default_factory=dict)
    """How many violations there are in all, by kind: `record`, `value`, `key_conflict`, `missing`,
    `unique`, `endpoint`, `cardinality`."""
    null_counts: Mapping[str, int] = field(default_factory=dict, hash=False)
    """How many values of columns are missing and became null, such as NaN, NaT, None and empty fields of CSV:
    by type and property, as in `Person.age`. They are not counted in records."""
    dialects: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What was guessed about CSV files, by file, as in `delimiter ';', dates as %d.%m.%Y`."""
    branch_created: bool = False
    """Whether the load made its branch first."""
    engine: EngineReport | None = None
    """What did the work."""
    pending_indexes: PendingIndexes = field(default_factory=dict, hash=False)
    """Columns whose declared index is not built yet or lags, by table; reads are right without."""

    def __repr__(self) -> str:
        counts = ", ".join(f"{rows} {name}" for name, rows in (*self.nodes.items(), *self.edges.items()))
        left_out = f", {self.skipped_total} violations left out" if self.skipped_counts else ""
        commit = "no commit" if self.commit is None else f"commit {self.commit.id}"
        return f"<LoadResult {counts or 'no rows'}{left_out}, {commit}>"

    def with_tasks(self, metrics: Iterable[TaskMetrics]) -> LoadResult:
        """Return the result with what its tasks cost."""
        return (
            self if self.engine is None else replace(self, engine=replace(self.engine, tasks=tuple(metrics)))
        )

    @property
    def total(self) -> int:
        """All rows that were loaded."""
        return sum(self.nodes.values()) + sum(self.edges.values())

    @property
    def skipped_total(self) -> int:
        """How many violations there are in all."""
        return sum(self.skipped_counts.values())


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Files and what to do with them."""

    inputs: tuple[str | os.PathLike[str], ...]
    """Files, folders and patterns, here or in buckets."""
    mode: Mode
    skip_bad: bool = False
    rejects: Path | None = None
    """Where all that is left out goes, with the reasons."""
    mapping: InputMapping | None = None
    """How columns become properties, where names alone are not enough."""
    dry_run: bool = False
    """Whether everything is checked and nothing is committed."""


def require_retry(mode: Mode, retry: int) -> None:
    """Refuse retries of loads that read nothing they replace, or that replace what another writer wrote."""
    if not retry or mode is Mode.PATCH:
        return
    raise BadRequest(
        f"`retry` is for loads with the mode 'patch', not '{mode}'",
        remedy="leave it out: an overwrite must not replace rows that you have not seen"
        if mode is Mode.OVERWRITE
        else "leave it out: the load is checked again on new rows by itself",
    )


class _WithNulls(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def nulls(self) -> Mapping[str, int]: ...


def sum_nulls(parts: Iterable[_WithNulls]) -> dict[str, int]:
    """How many values are missing in all parts, by type and property."""
    counts: Counter[str] = Counter()
    for part in parts:
        name = part.key.partition(":")[2]
        counts.update({f"{name}.{each}": count for each, count in part.nulls.items()})
    return dict(sorted(counts.items()))


def kinds_of(found: Iterable[Violation]) -> Iterator[str]:
    """The kinds of violations of single rows; what has no entity is not even a record."""
    return ("record" if one.entity is None else "value" for one in found)
