"""Rows that were given as rows: they wait in files that nobody else knows, and are told by their numbers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from omnigraph.engine.write.violations import Violation, rows_of
from omnigraph.errors import KeyConflict, LoadRejected


@dataclass(frozen=True, slots=True)
class GivenRows(os.PathLike[str]):
    """A file of some of the rows of a type; a load takes it like any other path."""

    at: str
    type: str
    before: int = 0
    """How many of the rows come before this file."""

    def __fspath__(self) -> str:
        return self.at

    def told(self, violation: Violation) -> Violation:
        """A violation in this file by the number of its row among all that were given."""
        line = None if violation.line is None else violation.line + self.before
        return replace(violation, file=rows_of(self.type), line=line)


class Names:
    """How the inputs of a load are called where people read of them."""

    def __init__(self, inputs: Iterable[str | os.PathLike[str]]) -> None:
        self._given = {one.at: one for one in inputs if isinstance(one, GivenRows)}

    def told(self, violation: Violation) -> Violation:
        """A violation as the user can find its place."""
        given = None if violation.file is None else self._given.get(violation.file)
        return violation if given is None else given.told(violation)

    def told_of(self, refused: LoadRejected | KeyConflict) -> LoadRejected | KeyConflict:
        """The same of all that an error names."""
        if not self._given:
            return refused
        told = [self.told(one) for one in refused.violations]
        if isinstance(refused, LoadRejected):
            return LoadRejected(told, total=refused.total, counts=refused.counts, remedy=refused.remedy)
        refused.violations = tuple(told)
        return refused
