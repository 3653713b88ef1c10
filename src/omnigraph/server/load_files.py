"""The handler of loads of files: an archive of them, which waits on disk until all of it is there.

The files are read by the readers of every other load, so formats, types by names and errors with lines are
the same as for files at hand. Names in an archive are only names: nothing is written where they point.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from contextlib import ExitStack
from pathlib import Path

from starlette.responses import Response

from omnigraph.engine.load.sources.item import Format
from omnigraph.engine.load.sources.mapping import MappingText
from omnigraph.engine.load.sources.pipes import ReceivedPipe
from omnigraph.errors import BadRequest
from omnigraph.lang.values import shorten_legibly
from omnigraph.server.loads import LoadInputs, answer_load, authorize_parameters, name_rows, receive
from omnigraph.server.requests import Call, require_media
from omnigraph.server.route import MIB
from omnigraph.storage.scratch import TemporaryFolder, wrap_temporary_errors

FOLDER = "omnigraph.folder"
"""The header of a member for the folder that its name is below; without it, the root of the archive."""
FORMAT = "omnigraph.format"
"""The header of a member whose name does not tell its format."""
TYPE = "omnigraph.type"
"""The header of a member for the type of its rows, where its name does not tell it."""
ROWS = "omnigraph.rows"
"""The header of a member that is rows in memory, as a stream of Arrow batches: their type."""


async def load_files(call: Call) -> Response:
    """Load the files of an archive, in one commit."""
    require_media(call.request, call.route.request_media)
    target = await authorize_parameters(call)
    with ExitStack() as kept:
        folder = kept.enter_context(TemporaryFolder("files"))
        archive = folder / "archive"
        await receive(call, archive)
        return await answer_load(call, target, lambda: _Archive(call, folder).unpack(archive), kept)


class _Archive:
    """The members of an archive: files to load, and a mapping among them."""

    def __init__(self, call: Call, folder: Path) -> None:
        self._call = call
        self._folder = folder
        self._mapping_name = call.query("mapping")
        self._type = call.query("type")
        self._mapping: MappingText | None = None
        self._files: list[os.PathLike[str]] = []

    def unpack(self, archive: Path) -> LoadInputs:
        """Return what a load reads: files that have the names of members, and are elsewhere."""
        try:
            with tarfile.open(archive, "r:") as members:
                for member in members:
                    if not member.isdir():
                        self._take(members, member)
        except (tarfile.TarError, EOFError, ValueError, RecursionError) as error:
            raise BadRequest(
                f"the body is not a tar archive: {error}", remedy="send one that is not compressed"
            ) from error
        if self._mapping_name is not None and self._mapping is None:
            raise BadRequest(
                f"the archive has no mapping '{shorten_legibly(self._mapping_name)}'",
                remedy="send it as a member",
            )
        if not self._files:
            raise BadRequest("the archive has no files")
        return LoadInputs(self._files, self._mapping)

    def _take(self, members: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        if member.name == self._mapping_name:
            self._mapping = MappingText(member.name, _read_text(members, member))
            return
        at = self._folder / str(len(self._files))
        _copy(members, member, at)
        headers = member.pax_headers
        if ROWS in headers:
            self._files.append(name_rows(self._call, at, headers[ROWS]))
            return
        form = _parse_format(headers.get(FORMAT))
        type_name = headers.get(TYPE, self._type)
        self._files.append(ReceivedPipe(member.name, str(at), form, headers.get(FOLDER, ""), type_name))


def _copy(members: tarfile.TarFile, member: tarfile.TarInfo, to: Path) -> None:
    # Holes take no bytes of a body, and any number of them on disk.
    source = members.extractfile(member) if member.isreg() and not member.issparse() else None
    if source is None:
        raise BadRequest(
            f"'{member.name}' in the archive is not a file", remedy="send plain files, without holes"
        )
    with wrap_temporary_errors(), source, to.open("wb") as sink:
        shutil.copyfileobj(source, sink)


def _read_text(members: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    source = members.extractfile(member) if member.isreg() and member.size <= MIB else None
    if source is None:
        raise BadRequest(f"mapping '{member.name}' is not a file of at most {MIB} bytes")
    try:
        with source:
            return source.read().decode()
    except UnicodeDecodeError:
        raise BadRequest(f"mapping '{member.name}' is not UTF-8") from None


def _parse_format(name: str | None) -> Format | None:
    try:
        return None if name is None else Format(name)
    except ValueError:
        raise BadRequest(
            f"'{shorten_legibly(name or '')}' is not a format of a load",
            remedy=f"it may be: {', '.join(Format)}",
        ) from None
