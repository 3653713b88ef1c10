"""Bindings of variables on Spark: a DataFrame, and what its columns hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID
from omnigraph.lang.query.terms import Distance, Fusion, Relevance, ShortestPath
from omnigraph.pipeline.query.task_frame import TaskFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANK = "rank"
"""The column of each row's place in the ranking, best first; rows of one ranked node share it."""

Held = tuple[str | ShortestPath, str] | Distance | Relevance | Fusion
"""A property of a variable, its id among them; nodes or edges of a path; or the score of a ranking."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A column, and the stored type of its values; Spark's may differ."""

    column: str
    type: pa.DataType


Slots = Mapping[Held, Slot]


@dataclass(frozen=True, slots=True)
class BindingFrame:
    """Bindings of variables, one row each: ids, and of each variable the properties that are needed."""

    rows: DataFrame | TaskFrame
    slots: Slots
    ranked: bool = False

    @property
    def frame(self) -> DataFrame:
        """The rows for Spark."""
        return self.rows.frame if isinstance(self.rows, TaskFrame) else self.rows

    @property
    def columns(self) -> list[str]:
        """What the rows have."""
        return list(self.rows.columns)

    def id(self, var: str) -> str:
        """The column with the ids of a variable."""
        return self.slots[var, ID].column

    def has(self, var: str) -> bool:
        """Whether a variable is bound."""
        return (var, ID) in self.slots

    def of(self, variables: Iterable[str]) -> dict[Held, Slot]:
        """What is held of some variables, and of paths between them."""
        wanted = set(variables)
        return {held: slot for held, slot in self.slots.items() if _is_about(held, wanted)}

    def paths_besides(self, other: BindingFrame) -> dict[Held, Slot]:
        """What is held of paths that other rows do not have."""
        return {
            held: slot
            for held, slot in self.slots.items()
            if isinstance(held, tuple) and isinstance(held[0], ShortestPath) and held not in other.slots
        }

    def on(self, rows: DataFrame | TaskFrame, added: Slots | None = None) -> BindingFrame:
        """Other rows with the same columns, and some more."""
        return replace(self, rows=rows, slots={**self.slots, **(added or {})})


def _is_about(held: Held, wanted: set[str]) -> bool:
    if not isinstance(held, tuple):
        return False
    of = held[0]
    return of in wanted if isinstance(of, str) else {of.start.var, of.end.var} <= wanted


class ColumnNames:
    """Generates column names: Spark ignores case, so the names of variables cannot be used."""

    def __init__(self) -> None:
        self._given: dict[Held, str] = {}

    def of(self, held: Held) -> str:
        """Return the column of something held, always the same one."""
        return self._given.setdefault(held, f"c{len(self._given)}")
