"""Pipes as inputs of a load: what comes out of them can be read once, so it waits in a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from pathlib import Path
from typing import BinaryIO

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.item import Format
from omnigraph.errors import BadRequest
from omnigraph.progress import stage
from omnigraph.storage.input_files import is_in_bucket
from omnigraph.storage.scratch import TemporaryFolder, wrap_temporary_errors

_BLOCK = 2**20
_OWN = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/")
"""Names that mean something else in every process."""


@dataclass(frozen=True, slots=True)
class Stream(os.PathLike[str]):
    """An input that may be a pipe, with what its name cannot show."""

    name: str
    """As the user calls it."""
    format: Format | None = None
    """What comes out of it, if it is a pipe."""
    opened: BinaryIO | None = None
    """Where to read, if it has no path: standard input."""

    def __fspath__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ReceivedPipe(os.PathLike[str]):
    """What came out of a pipe, in a file; a load takes it like any other path."""

    name: str
    """As the user calls the pipe."""
    at: str
    """The file."""
    format: Format | None = None
    folder: str | None = None
    """The folder that its name is below, where folders tell its type."""
    type: str | None = None
    """The type of its rows, where the caller named it."""

    def __fspath__(self) -> str:
        return self.name


@contextmanager
def receive_pipes(inputs: Sequence[str | os.PathLike[str]]) -> Iterator[tuple[str | os.PathLike[str], ...]]:
    """The inputs of a load with a file in place of each pipe; the files are there while the block lasts."""
    if not any(map(_is_pipe, inputs)):
        _refuse_formats(one for one in inputs if isinstance(one, Stream))
        yield tuple(inputs)
        return
    with TemporaryFolder("input") as folder:
        receiver = _Receiver(folder)
        yield tuple(receiver.of(_as_stream(one)) if _is_pipe(one) else one for one in inputs)


def _as_stream(given: str | os.PathLike[str]) -> Stream:
    return given if isinstance(given, Stream) else Stream(os.fspath(given))


def _is_pipe(given: str | os.PathLike[str]) -> bool:
    if isinstance(given, ReceivedPipe):
        return False  # it has been read; its name may be that of a pipe, on this machine or another
    stream = _as_stream(given)
    if stream.opened is not None:
        return True
    if is_in_bucket(stream.name):
        return False
    try:
        mode = os.stat(stream.name).st_mode  # noqa: PTH116 - `Path` takes a part of some names away
    except (OSError, ValueError):
        return False  # a pattern, or nothing: an error when it is looked for
    own = stream.name.startswith(_OWN) and not stat.S_ISDIR(mode)
    return own or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)


def _refuse_formats(streams: Iterable[Stream]) -> None:
    if any(stream.format is not None for stream in streams):
        raise BadRequest(
            "a format was given for standard input and pipes, but there are none among the inputs",
            remedy="let the names of files end with their format, or give it in a mapping",
        )


@dataclass(frozen=True, slots=True)
class _Receiver:
    folder: Path
    seen: set[tuple[int, int]] = field(default_factory=set)
    """The pipes that were read, as the kernel knows them."""

    def of(self, stream: Stream) -> ReceivedPipe:
        """A stream, read to its end."""
        try:
            if (at := _file_behind(stream)) is not None:
                return ReceivedPipe(stream.name, at, stream.format)
            with _open_stream(stream) as source:
                self._refuse_twice(stream, source)
                at = str(self.folder / str(len(list(self.folder.iterdir()))))
                _copy_stream(stream.name, source, at)
        except OSError as failure:
            reason = f"cannot read '{stream.name}': {failure.strerror or failure}"
            raise BadRequest(reason, remedy="check what it leads to") from failure
        return ReceivedPipe(stream.name, at, stream.format)

    def _refuse_twice(self, stream: Stream, source: BinaryIO) -> None:
        """Refuse a pipe that is named twice: its second reader finds nothing, or waits for ever."""
        try:
            found = os.fstat(source.fileno())
        except OSError:
            return  # something in memory that stands for standard input
        if stat.S_ISREG(found.st_mode) or stat.S_ISCHR(found.st_mode):
            return
        if (found.st_dev, found.st_ino) in self.seen:
            raise BadRequest(f"'{stream.name}' is read already, and can be read once", remedy="name it once")
        self.seen.add((found.st_dev, found.st_ino))


def _file_behind(stream: Stream) -> str | None:
    """The file that standard input, or whatever else is open here, was redirected from, if it has a name."""
    if stream.opened is not None:
        return None
    at = Path(stream.name).resolve()
    return str(at) if at.is_file() and at.samefile(stream.name) else None


@contextmanager
def _open_stream(stream: Stream) -> Iterator[BinaryIO]:
    if stream.opened is not None:
        yield stream.opened
        return
    with Path(stream.name).open("rb", buffering=0) as source:
        yield source


def _copy_stream(name: str, source: BinaryIO, at: str) -> None:
    with ExitStack() as files, stage("receive", tasks=None) as receiving:
        with wrap_temporary_errors():
            sink = files.enter_context(Path(at).open("wb", buffering=0))
        while block := source.read(_BLOCK):
            rest = memoryview(block)
            while rest:
                with wrap_temporary_errors():
                    rest = rest[sink.write(rest) :]
            receiving.advance(size=len(block))
    if block is None:
        raise BadRequest(f"cannot read '{name}': it does not wait for what is still to come")
