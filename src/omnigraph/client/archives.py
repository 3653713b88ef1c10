"""Files as a tar archive that is made while it is sent."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import field

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.input_files import InputFile
from omnigraph.errors import BadRequest
from omnigraph.storage.input_files import open_input

TAR = "application/x-tar"
FOLDER = "omnigraph.folder"
"""The header of a member for the folder that its name is below."""
FORMAT = "omnigraph.format"
"""The header of a member whose name does not tell its format."""
TYPE = "omnigraph.type"
"""The header of a member for the type of its rows, where its name does not tell it."""
ROWS = "omnigraph.rows"
"""The header of a member that is rows in memory: their type."""
CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """A file of an archive."""

    name: str
    content: str | bytes = field(repr=False)
    """Its bytes, or the place of a file."""
    size: int
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_file(cls, file: InputFile, *, is_pipe: bool, type_name: str | None = None) -> Member:
        """Return a file under the name that the user gave it."""
        headers = {FOLDER: file.folder, **({FORMAT: file.format.value} if is_pipe else {})}
        if type_name is not None:
            headers[TYPE] = type_name
        return cls(file.file, file.at, file.size, headers)


def pack_members(members: Iterable[Member]) -> Iterator[bytes]:
    """Yield an archive."""
    for member in members:
        yield _head(member)
        yield from _content(member)
        yield bytes(-member.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _head(member: Member) -> bytes:
    head = tarfile.TarInfo(member.name)
    head.size = member.size
    head.pax_headers = {"path": member.name, **member.headers}
    return head.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")


def _content(member: Member) -> Iterator[bytes]:
    if isinstance(member.content, bytes):
        yield member.content
        return
    left = member.size
    with closing(open_input(member.content)) as source:
        while left:
            chunk = source.read(min(CHUNK, left))
            if not chunk:
                raise BadRequest(f"'{member.name}' became shorter while it was read", remedy="load it again")
            left -= len(chunk)
            yield chunk
