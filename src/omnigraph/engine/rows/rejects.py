"""The violations of a load: the first are reported, and all are written to a file on request."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from omnigraph.engine.files.atomic_output import copy_permissions, create_temporary, resolve_link
from omnigraph.engine.files.output_paths import require_output
from omnigraph.engine.rows.violations import Violation
from omnigraph.errors import BadRequest

VIOLATIONS_TOLD = 100
"""How many violations are reported one by one."""


@contextmanager
def open_rejects_file(at: Path | None, inputs: Sequence[Path]) -> Iterator[RejectsFile | None]:
    """The file for all that is wrong; it appears under its name when it is kept, or not at all."""
    if at is None:
        yield None
        return
    if (at.exists() and not at.is_file()) or any(_same(at, path) for path in inputs):
        raise BadRequest(
            f"cannot write rejects to '{at}': it is no file, or one to be loaded",
            remedy="name another file",
        )
    rejects = RejectsFile(require_output(at))
    try:
        yield rejects
    finally:
        rejects.close()


def _same(at: Path, other: Path) -> bool:
    return at.exists() and other.exists() and at.samefile(other)


def _escape_surrogates(told: dict[str, Any]) -> dict[str, Any]:
    """The same with escapes in texts that are not UTF-8: names of files can be any bytes."""
    return {
        member: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for member, value in told.items()
    }


class RejectsFile:
    """NDJSON under a temporary name beside the one it is to have, or beside the file that a link leads to."""

    def __init__(self, at: Path) -> None:
        self._at = at
        with self._written():
            self._goal = resolve_link(at)
            self._temporary: Path | None = self._goal.with_name(f".{at.name}-{secrets.token_hex(8)}")
            create_temporary(self._temporary, self._goal)
            self._file = self._temporary.open("wb")

    def write(self, found: Iterable[tuple[Violation, Any]]) -> None:
        """All that is wrong, in place of what an earlier try found.

        Each comes with the record it is about, as JSON takes it; None when there is none.
        """
        with self._written():
            self._file.seek(0)
            self._file.truncate()
            for one, record in found:
                told = {**_escape_surrogates(one.to_json()), "record": record}
                self._file.write(msgspec.json.encode(told) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())

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
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as failure:
            raise BadRequest(
                f"cannot write '{self._at}': {failure.strerror}; nothing was loaded", remedy="check the path"
            ) from failure
