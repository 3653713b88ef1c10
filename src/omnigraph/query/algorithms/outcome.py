"""What an algorithm found, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.engine.graph.lineage import Commit
from omnigraph.query.result import Result


@dataclass(frozen=True, slots=True)
class WrittenProperty:
    """Values that were written to a property."""

    type: str
    property: str
    branch: str
    rows: int
    """How many nodes got another value than they had."""
    commit: Commit | None
    """None when all of them had their values already."""
    branch_created: bool = False


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class AlgorithmResult(Result):
    """A value for each node, ordered by type and id: the columns `id`, `type` and `value`."""

    rounds: int = 0
    """How often all edges were looked at."""
    converged: bool = True
    """Whether another round would have changed nothing, or less than what counts."""
    engine: str = "local"
    why: str = ""
    """Why that engine."""
    written: WrittenProperty | None = None
    """The write that was asked for with `write_to`."""

    def about(self) -> dict[str, Any]:
        """What was asked, of what, and how it went."""
        # Not `super()`: a class with slots is made twice, and that would mean the first.
        return {
            **Result.about(self),
            "rounds": self.rounds,
            "converged": self.converged,
            "engine": self.engine,
        }
