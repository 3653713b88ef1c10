"""Rows in flight on Spark: a DataFrame, and what its columns hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.engine.columns import ID
from omnigraph.lang.query.terms import Distance, Fusion, Relevance
from omnigraph.pipeline.query.tasked import Tasked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RANK = "rank"
"""The column of each row's place in the ranking, best first; rows of one ranked node share it."""

Held = tuple[str, str] | Distance | Relevance | Fusion
"""A property of a variable, its id among them, or the score that rows were ranked by."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A column, and the type that its values have with us; Spark's may be another."""

    column: str
    type: pa.DataType


Slots = Mapping[Held, Slot]


@dataclass(frozen=True, slots=True)
class Flight:
    """Bindings of variables, one row each: ids, and of each variable the properties that are needed."""

    rows: DataFrame | Tasked
    slots: Slots
    ranked: bool = False

    @property
    def frame(self) -> DataFrame:
        """The rows for Spark."""
        return self.rows.frame if isinstance(self.rows, Tasked) else self.rows

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
        """What is held of some variables."""
        wanted = set(variables)
        return {held: slot for held, slot in self.slots.items() if _variable(held) in wanted}

    def on(self, rows: DataFrame | Tasked, added: Slots | None = None) -> Flight:
        """Other rows with the same columns, and some more."""
        return replace(self, rows=rows, slots={**self.slots, **(added or {})})


def _variable(held: Held) -> str | None:
    return held[0] if isinstance(held, tuple) else None


class Names:
    """Names of columns; Spark takes `$a` and `$A` for the same, so variables lend none."""

    def __init__(self) -> None:
        self._given: dict[Held, str] = {}

    def of(self, held: Held) -> str:
        """The column of something held, the same wherever it is asked for."""
        return self._given.setdefault(held, f"c{len(self._given)}")
