"""How rows are joined: by shuffles, or all in one task if there are few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.lang.query import plan as p
from omnigraph.query.engine_choice import tables_read

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FEW_ROWS = 10_000
"""A query of tables with at most so many rows runs as one task: a shuffle would take longer than the join."""


@dataclass(frozen=True, slots=True)
class JoinStrategy:
    """How the rows of one query are joined."""

    few: bool

    @classmethod
    def of(cls, snapshot: Snapshot, plan: p.Plan) -> JoinStrategy:
        """Choose by the row counts in the manifest of the tables that a plan reads."""
        counts = [snapshot.entries[key].row_count for key in tables_read(plan) if key in snapshot.entries]
        known = [count for count in counts if count is not None]
        return cls(len(known) == len(counts) and sum(known) <= FEW_ROWS)

    def join(
        self, left: DataFrame, right: DataFrame, on: Column, how: str = "inner", *, stored: bool = False
    ) -> DataFrame:
        """Join two sides; the right one is `stored` if it has no more rows than a table."""
        if not self.few:
            return left.join(right, on, how)
        # One partition stays one and needs no shuffle; after a join Spark needs the hint.
        return left.join(right.hint("shuffle_hash" if stored else "merge"), on, how).coalesce(1)

    def distinct(self, rows: DataFrame, by: str) -> DataFrame:
        """Return distinct rows, to be joined by a column."""
        # By that column first, so that Spark need not move them again for the join.
        return rows.distinct() if self.few else rows.repartition(by).distinct()
