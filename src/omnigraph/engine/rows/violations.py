"""What is wrong with rows of a load, and where they came from."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.files.atomic_output import copy_permissions, create_temporary, resolve_link
from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest
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
        return escape_unprintable(self._describe())

    def _describe(self) -> str:
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


MAX_REPORTED_VIOLATIONS = 100
"""How many violations are reported one by one."""


@contextmanager
def open_rejects_file(at: Path | None, inputs: Sequence[Path]) -> Iterator[RejectsFile | None]:
    """The file for all that is wrong; it appears under its name when it is kept, or not at all."""
    if at is None:
        yield None
        return
    if (at.exists() and not at.is_file()) or any(_is_same_file(at, path) for path in inputs):
        raise BadRequest(
            f"cannot write rejects to '{at}': it is no file, or one to be loaded",
            remedy="name another file",
        )
    rejects = RejectsFile(require_output(at))
    try:
        yield rejects
    finally:
        rejects.close()


def _is_same_file(at: Path, other: Path) -> bool:
    return at.exists() and other.exists() and at.samefile(other)


def _escape_surrogates(entry: dict[str, Any]) -> dict[str, Any]:
    """The same with escapes in texts that are not UTF-8: names of files can be any bytes."""
    return {
        member: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for member, value in entry.items()
    }


class RejectsFile:
    """NDJSON under a temporary name beside the one it is to have, or beside the file that a link leads to."""

    def __init__(self, at: Path) -> None:
        self._at = at
        with self._write_file():
            self._goal = resolve_link(at)
            self._temporary: Path | None = self._goal.with_name(f".{at.name}-{secrets.token_hex(8)}")
            create_temporary(self._temporary, self._goal)
            self._file = self._temporary.open("wb")

    def write(self, found: Iterable[tuple[Violation, Any]]) -> None:
        """All that is wrong, in place of what an earlier try found.

        Each comes with the record it is about, as JSON takes it; None when there is none.
        """
        with self._write_file():
            self._file.seek(0)
            self._file.truncate()
            for one, record in found:
                entry = {**_escape_surrogates(one.to_json()), "record": record}
                self._file.write(msgspec.json.encode(entry) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

    def append(self, chunk: bytes) -> None:
        """Write a part of a file of rejects that another process has written."""
        with self._write_file():
            self._file.write(chunk)

    def keep(self, outcome: str = "the load is done, but") -> None:
        """Give the file its name."""
        assert self._temporary is not None
        temporary, self._temporary = self._temporary, None
        self._file.close()
        try:
            copy_permissions(self._goal, temporary)
            temporary.replace(self._goal)
        except OSError as failure:
            raise BadRequest(
                f"{outcome} '{self._at}' cannot be written: {failure.strerror}",
                remedy=f"what is wrong is in '{temporary}'",
            ) from failure

    def close(self) -> None:
        """Remove the file, unless it was kept."""
        self._file.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)

    @contextmanager
    def _write_file(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            raise BadRequest(
                f"cannot write '{self._at}': {failure.strerror}; nothing was loaded", remedy="check the path"
            ) from failure
