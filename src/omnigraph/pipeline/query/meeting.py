"""How rows meet: many where Spark moves them to, few of them all in one task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.engine.snapshot import Snapshot
from omnigraph.lang.query import plan as p
from omnigraph.pipeline.query.needs import tables_read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FEW_ROWS = 10_000
"""A query of tables with so many rows in all is one task: to move them takes longer than to join them."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the rows of one query meet."""

    few: bool

    @classmethod
    def of(cls, snapshot: Snapshot, plan: p.Plan) -> Meeting:
        """By the numbers of rows that the manifest has of the tables that a plan reads."""
        counts = [snapshot.entries[key].row_count for key in tables_read(plan) if key in snapshot.entries]
        known = [count for count in counts if count is not None]
        return cls(len(known) == len(counts) and sum(known) <= FEW_ROWS)

    def join(
        self, left: DataFrame, right: DataFrame, on: Column, how: str = "inner", *, stored: bool = False
    ) -> DataFrame:
        """Rows of two sides; those of the right are `stored` if there are no more than in a table."""
        if not self.few:
            return left.join(right, on, how)
        # What is in one partition stays there and needs no job of its own; after a join Spark must be told.
        return left.join(right.hint("shuffle_hash" if stored else "merge"), on, how).coalesce(1)

    def different(self, rows: DataFrame, by: str) -> DataFrame:
        """Rows without those that are there already, to be joined by a column."""
        # By that column first, so that Spark need not move them again for the join.
        return rows.distinct() if self.few else rows.repartition(by).distinct()
