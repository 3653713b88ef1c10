"""What a load leaves out: the first of it in memory, how much there is, and all of it in a file if asked."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from omnigraph.engine.write.splits import Split
from omnigraph.engine.write.violations import Violation
from omnigraph.errors import BadRequest

VIOLATIONS_TOLD = 100
"""So many violations are told one by one."""

_NOT_UTF8 = "replace"


@dataclass(slots=True)
class Tally:
    """Violations: the first ones, and how many there are of each kind."""

    told: list[Violation] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """How many there are in all."""
        return self.counts.total()

    def add(self, found: Sequence[Violation]) -> None:
        """Violations of single records, in input order."""
        self.told += found[: VIOLATIONS_TOLD - len(self.told)]
        # What has no entity is not even a record.
        self.counts.update("record" if one.entity is None else "value" for one in found)


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
        self._begin = 0
        with self._written():
            self._file = self._temporary.open("xb")

    def restart(self) -> None:
        """Forget everything: the files are read again."""
        with self._written():
            self._file.seek(0)
            self._file.truncate()
            self._begin = 0

    def add_lines(self, found: Sequence[Violation], split: Split) -> None:
        """Violations of single records of a split."""
        if not found:
            return
        lines = split.data.split(b"\n")
        with self._written():
            for one in found:
                self._file.write(_entry(one, lines[(one.line or 0) - split.first_line]))
            self._begin = self._file.tell()

    def set_rest(self, found: Iterable[Violation], files: Mapping[str, Path]) -> None:
        """The violations of rules about several records, in input order; those of an earlier try are gone."""
        with self._written():
            self._file.seek(self._begin)
            self._file.truncate()
            for one, line in _with_lines(found, files):
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
    return msgspec.json.encode({**asdict(violation), "record": _record(line)}) + b"\n"


def _record(line: bytes | None) -> msgspec.Raw | str | None:
    """The line as it is where it is JSON, and its text where it is not."""
    if line is None:
        return None
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line.rstrip(b"\r").decode(errors=_NOT_UTF8)
    return msgspec.Raw(line.strip())


def _with_lines(
    found: Iterable[Violation], files: Mapping[str, Path]
) -> Iterator[tuple[Violation, bytes | None]]:
    """Violations with the lines they are about, which are read again: only their numbers are in memory."""
    name: str | None = None
    lines: Iterator[bytes] = iter(())
    number, line = 0, b""
    for one in found:
        if one.file is None or one.line is None:
            yield one, None
            continue
        if one.file != name or one.line < number:
            name, number = one.file, 0
            lines = _lines(files[name])
        while number < one.line:
            number, line = number + 1, next(lines, b"")
        yield one, line


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as stream:
            for line in stream:
                yield line.rstrip(b"\n")
    except OSError as failure:
        raise unreadable(path, failure) from failure


def unreadable(path: Path, failure: OSError) -> BadRequest:
    """A file of a load that cannot be read."""
    return BadRequest(f"cannot read '{path}': {failure.strerror}", remedy="check the path")
