"""The handler of loads of files: an archive of them, which waits on disk until all of it is there.

The files are read by the readers of every other load, so formats, types by names and errors with lines are
the same as for files at hand. Names in an archive are only names: nothing is written where they point.
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from starlette.responses import Response

from omnigraph.engine.load.sources.pipes import ReceivedPipe
from omnigraph.errors import BadRequest
from omnigraph.server.loads import authorize_parameters, receive, run_load
from omnigraph.server.requests import Call, require_media
from omnigraph.server.wire.loads import load_output
from omnigraph.storage.scratch import TemporaryFolder, wrap_temporary_errors

FOLDER = "omnigraph.folder"
"""The header of a member for the folder that its name is below; without it, the root of the archive."""


async def load_files(call: Call) -> Response:
    """Load the files of an archive, in one commit."""
    require_media(call.request, call.route.request_media)
    target = await authorize_parameters(call)
    with TemporaryFolder("files") as folder:
        archive = folder / "archive"
        size = await receive(call, archive)

        def work() -> bytes:
            files = _unpack(archive, folder)
            return call.encode(load_output(run_load(call, target, files), target, call.actor, []))

        with call.admit(size):
            return call.reply(await call.write(work))


def _unpack(archive: Path, folder: Path) -> list[ReceivedPipe]:
    """Return the files of an archive under the names they have in it, with their bytes in files of ours."""
    found: list[ReceivedPipe] = []
    try:
        with tarfile.open(archive, "r:") as members:
            for member in members:
                if not member.isdir():
                    found.append(_copy(members, member, folder / str(len(found))))
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise BadRequest(
            f"the body is not a tar archive: {error}", remedy="send one that is not compressed"
        ) from error
    if not found:
        raise BadRequest("the archive has no files")
    return found


def _copy(members: tarfile.TarFile, member: tarfile.TarInfo, to: Path) -> ReceivedPipe:
    source = members.extractfile(member) if member.isreg() else None
    if source is None:
        raise BadRequest(f"'{member.name}' in the archive is not a file", remedy="send plain files")
    with wrap_temporary_errors(), source, to.open("wb") as sink:
        shutil.copyfileobj(source, sink)
    return ReceivedPipe(member.name, str(to), folder=member.pax_headers.get(FOLDER, ""))
