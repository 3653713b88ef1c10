"""What is wrong with rows of a load, and where they came from."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnigraph.lang.values import escape_unprintable

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


_LINE = re.compile("^(invalid (?:strict JSON|CSV) at line |line )[0-9]+(?=: )")
_GIVEN = "<rows of "


@dataclass(frozen=True, slots=True)
class Violation:
    """One reason why a load is refused; file and line are None when it is about a stored row."""

    file: str | None
    line: int | None
    """The line, or the row of a file without lines, counted from 1; None when it is about the whole file."""
    entity: str | None
    """The table and, once it is known, the id: `node:Person 'ada'`."""
    reason: str
    row_group: int | None = None
    """The row group of a Parquet file in which the row is counted, from 1."""

    def __str__(self) -> str:
        return escape_unprintable(self._told)

    @property
    def _told(self) -> str:
        if self.file is None:
            # Only its id identifies an edge; a node that breaks a rule is in the reason.
            stored_edge = self.entity is not None and self.entity.startswith("edge:")
            return f"stored {self.entity}: {self.reason}" if stored_edge else self.reason
        if self.line is None:
            return f"{self.file}: {self.reason}"
        if self.row_group is not None:
            return f"{self.file}: row group {self.row_group}, row {self.line}: {self.reason}"
        if self._given:
            return f"{self.file}: row {self.line}: {self.reason}"
        return f"{self.file}:{self.line}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """The violation as plain JSON values; in a row group or in rows given it has a row, not a line."""
        about = {"entity": self.entity, "reason": self.reason}
        if self._given:
            return {"file": self.file, "row": self.line, **about}
        if self.row_group is None:
            return {"file": self.file, "line": self.line, **about}
        return {"file": self.file, "row_group": self.row_group, "row": self.line, **about}

    @property
    def _given(self) -> bool:
        return self.file is not None and self.file.startswith(_GIVEN)

    def moved(self, lines: int) -> Violation:
        """The same, so many lines further down: what a reader says that did not see the lines before.

        A row of a row group stays where it is.
        """
        if not lines or self.line is None or self.row_group is not None:
            return self
        line = self.line + lines
        return replace(self, line=line, reason=_LINE.sub(rf"\g<1>{line}", self.reason, count=1))


@dataclass(frozen=True, slots=True)
class Origins:
    """Where each row of a table came from, in input order."""

    files: tuple[str, ...]
    """The names of the files of the load, by number."""
    file: Numbers
    line: Numbers

    def place(self, row: int) -> tuple[str, int]:
        """File name and line of a row."""
        return self.files[int(self.file[row])], int(self.line[row])


def passed_rows_name(type_name: str) -> str:
    """What stands for a file where rows were given as rows."""
    return f"{_GIVEN}{type_name}>"


def format_entity(key: str, entity_id: str | None) -> str:
    """An entity as violations name it."""
    return key if entity_id is None else f"{key} '{entity_id}'"
