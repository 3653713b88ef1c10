"""The files beside `cluster.yaml`: each is read once, and its digest is that of its bytes."""

from __future__ import annotations

import errno
import stat
from dataclasses import field
from pathlib import Path

from omnigraph.cluster.config import Located
from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.digests import hash_bytes
from omnigraph.deferred_dataclass import dataclass

MAX_FILE_BYTES = 64 << 20
"""No schema, query or policy of this size would compile."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when the command read it."""

    shown: str
    """As the configuration names it; findings and outputs use this."""
    path: Path
    data: bytes = field(repr=False)
    digest: str

    def read_again(self) -> bytes | None:
        """Return the content of the file now; None when it is no longer the same."""
        try:
            data = self.path.read_bytes()
        except OSError:
            return None
        return data if hash_bytes(data) == self.digest else None


@dataclass(frozen=True, slots=True)
class Inlined:
    """A text that was made of a declaration and the files that it names."""

    shown: str
    data: bytes = field(repr=False)
    digest: str
    files: tuple[SourceFile, ...]

    def read_again(self) -> bytes | None:
        """Return the text; None when one of its files is no longer the same."""
        return self.data if all(one.read_again() is not None for one in self.files) else None


class SourceFiles:
    """Reads files of one directory, each once."""

    def __init__(self, directory: Path, findings: Findings) -> None:
        self._directory = directory
        self._findings = findings
        self._read: dict[Path, SourceFile] = {}

    def read(self, declared: Located, code: str, shown: str | None = None) -> SourceFile | None:
        """Return a file; one that cannot be read is a finding with `code`."""
        name = shown or declared.text
        path = self._directory / name
        if path not in self._read:
            try:
                data = _read_bounded(path)
            except OSError as failure:
                message = f"'{name}' cannot be read: {failure.strerror}"
                self._findings.add(code, declared.path, message, declared.place)
                return None
            self._read[path] = SourceFile(name, path, data, hash_bytes(data))
        return self._read[path]

    def list_queries(self, declared: Located) -> list[str]:
        """Return the query files that a file or a directory stands for, as `read` takes them."""
        path = self._directory / declared.text
        try:
            if not path.is_dir():
                return [declared.text]
            found = sorted(one.name for one in path.iterdir() if one.suffix == ".gq" and one.is_file())
        except OSError as failure:
            message = f"'{declared.text}' cannot be read: {failure.strerror}"
            self._findings.add("query_file_missing", declared.path, message, declared.place)
            return []
        if not found:
            message = f"'{declared.text}' has no `.gq` file"
            self._findings.add("query_directory_empty", declared.path, message, declared.place)
        return [f"{declared.text.rstrip('/')}/{name}" for name in found]


def _read_bounded(path: Path) -> bytes:
    """Return the content of a file; a device or a pipe may have no end."""
    found = path.stat()
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        raise OSError(errno.EINVAL, "it is no regular file")
    # Not `read(limit)`, which makes room for so many bytes first.
    if stat.S_ISREG(found.st_mode) and found.st_size > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MAX_FILE_BYTES} bytes")
    return path.read_bytes()
