"""Rows that the caller passed in memory: spooled to private files, reported by row number."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace

from omnigraph.engine.rows.violations import Violation, passed_rows_name
from omnigraph.errors import KeyConflict, LoadRejected


@dataclass(frozen=True, slots=True)
class PassedRows(os.PathLike[str]):
    """A file of some of the rows of a type; a load takes it like any other path."""

    at: str
    type: str
    before: int = 0
    """How many of the rows come before this file."""

    def __fspath__(self) -> str:
        return self.at

    def locate(self, violation: Violation) -> Violation:
        """A violation in this file by its row number among all passed rows."""
        line = None if violation.line is None else violation.line + self.before
        return replace(violation, file=passed_rows_name(self.type), line=line)


class InputNames:
    """How the inputs of a load are called where people read of them."""

    def __init__(self, inputs: Iterable[str | os.PathLike[str]]) -> None:
        self._given = {one.at: one for one in inputs if isinstance(one, PassedRows)}

    def locate(self, violation: Violation) -> Violation:
        """A violation as the user can find its place."""
        given = None if violation.file is None else self._given.get(violation.file)
        return violation if given is None else given.locate(violation)

    def locate_all(self, refused: LoadRejected | KeyConflict) -> LoadRejected | KeyConflict:
        """The same of all that an error names."""
        if not self._given:
            return refused
        located = [self.locate(one) for one in refused.violations]
        if isinstance(refused, LoadRejected):
            return LoadRejected(located, total=refused.total, counts=refused.counts, remedy=refused.remedy)
        refused.violations = tuple(located)
        return refused
