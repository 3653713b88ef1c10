"""Files as a tar archive that is made while it is sent."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from contextlib import closing

from omnigraph.engine.load.sources.input_files import InputFile
from omnigraph.errors import BadRequest
from omnigraph.storage.input_files import open_input

TAR = "application/x-tar"
FOLDER = "omnigraph.folder"
"""The header of a member for the folder that its name is below."""
CHUNK = 1 << 20


def pack_files(files: Iterable[InputFile]) -> Iterator[bytes]:
    """Yield an archive of files, each under the name that the user gave it."""
    for file in files:
        yield _head(file)
        yield from _content(file)
        yield bytes(-file.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _head(file: InputFile) -> bytes:
    member = tarfile.TarInfo(file.file)
    member.size = file.size
    member.pax_headers = {"path": file.file, FOLDER: file.folder}
    return member.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")


def _content(file: InputFile) -> Iterator[bytes]:
    left = file.size
    with closing(open_input(file.at)) as source:
        while left:
            chunk = source.read(min(CHUNK, left))
            if not chunk:
                raise BadRequest(f"'{file.file}' became shorter while it was read", remedy="load it again")
            left -= len(chunk)
            yield chunk
