"""What is wrong with rows of a load, and where they came from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Violation:
    """One reason why a load is refused; file and line are None when it is about a stored row."""

    file: str | None
    line: int | None
    entity: str | None
    """The table and, once it is known, the id: `node:Person 'ada'`."""
    reason: str

    def __str__(self) -> str:
        return self.reason if self.file is None else f"{self.file}:{self.line}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """The violation as plain JSON values."""
        return asdict(self)


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


def entity_name(key: str, entity_id: str | None) -> str:
    """An entity as violations name it."""
    return key if entity_id is None else f"{key} '{entity_id}'"
