"""What a load leaves out: the first of it in memory, how much there is, and all of it in a file if asked."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from omnigraph.engine.write.violations import Violation
from omnigraph.errors import BadRequest

VIOLATIONS_TOLD = 100
"""So many violations are told one by one."""

LinesOf = Callable[[str], Iterator[bytes] | None]
"""The lines of a file; None when it has none."""

_NOT_UTF8 = "replace"


@contextmanager
def rejects_file(at: Path | None, inputs: Sequence[Path]) -> Iterator[RejectsFile | None]:
    """The file for all that a load leaves out; it appears under its name when it is kept, or not at all."""
    if at is None:
        yield None
        return
    if at.is_dir() or any(_same(at, path) for path in inputs):
        raise BadRequest(
            f"cannot write rejects to '{at}': it is a folder or a file to be loaded",
            remedy="name another file",
        )
    rejects = RejectsFile(at)
    try:
        yield rejects
    finally:
        rejects.close()


def _same(at: Path, other: Path) -> bool:
    return at.exists() and other.exists() and at.samefile(other)


class RejectsFile:
    """NDJSON under a temporary name beside the one it is to have."""

    def __init__(self, at: Path) -> None:
        self._at = at
        self._temporary: Path | None = at.with_name(f".{at.name}-{secrets.token_hex(8)}")
        with self._written():
            self._file = self._temporary.open("xb")

    def write(self, found: Iterable[Violation], lines: LinesOf) -> None:
        """All that is left out, in place of what an earlier try would have left out."""
        with self._written():
            self._file.seek(0)
            self._file.truncate()
            for one, line in _with_lines(found, lines):
                self._file.write(_entry(one, line))
            self._file.flush()
            os.fsync(self._file.fileno())

    def keep(self) -> None:
        """Give the file its name."""
        assert self._temporary is not None
        temporary, self._temporary = self._temporary, None
        self._file.close()
        try:
            temporary.replace(self._at)
        except OSError as failure:
            raise BadRequest(
                f"the load is done, but '{self._at}' cannot be written: {failure.strerror}",
                remedy=f"what was left out is in '{temporary}'",
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


def _entry(violation: Violation, line: bytes | None) -> bytes:
    return msgspec.json.encode({**violation.to_json(), "record": _record(line)}) + b"\n"


def _record(line: bytes | None) -> msgspec.Raw | str | None:
    """The line as it is where it is JSON, and its text where it is not."""
    if line is None:
        return None
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line.rstrip(b"\r").decode(errors=_NOT_UTF8)
    return msgspec.Raw(line.strip())


def _with_lines(found: Iterable[Violation], lines_of: LinesOf) -> Iterator[tuple[Violation, bytes | None]]:
    """Violations with the lines they are about, which are read again: only their numbers are in memory."""
    name: str | None = None
    lines: Iterator[bytes] | None = None
    number, line = 0, b""
    for one in found:
        if one.file is None or one.line is None or one.row_group is not None:
            yield one, None
            continue
        if one.file != name or one.line < number:
            name, number = one.file, 0
            lines = lines_of(name)
        if lines is None:
            yield one, None
            continue
        while number < one.line:
            number, line = number + 1, next(lines, b"")
        yield one, line
