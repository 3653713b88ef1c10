"""`omnigraph query`: read from a graph."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Store, Uri, addressed
from omnigraph.cli.formats import FORMATS, Format
from omnigraph.cli.lazy import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.query_options import (
    Branch,
    Commit,
    Named,
    Param,
    Params,
    ParamsFile,
    QueryFile,
    QueryName,
    QueryText,
    Time,
    Version,
    asked,
)
from omnigraph.errors import BadRequest, StorageFailure

app = new_app()


@app.command()
def query(
    name: QueryName = None,
    file: QueryFile = None,
    text: QueryText = None,
    named: Named = None,
    params: Params = None,
    params_file: ParamsFile = None,
    param: Param = None,
    branch: Branch = None,
    commit: Commit = None,
    version: Version = None,
    time: Time = None,
    form: Annotated[Format, typer.Option("--format", help="How to print what was found.")] = Format.TABLE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to this file.", metavar="FILE")
    ] = None,
    uri: Uri = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Run a read query and print the rows it finds, now or at a commit, version or time."""
    place = addressed(uri=uri, store=store)
    meant = asked(name, named, file, text, params, params_file, param)
    chosen = Format.JSON if as_json else form
    if chosen is Format.ARROW and output is None and sys.stdout.isatty():
        raise BadRequest("the arrow format is not for a terminal", remedy="name a file with --output")
    with graph.open(place, read_only=True) as opened:
        found = opened.query(
            meant.source,
            meant.params,
            name=meant.name,
            branch=branch,
            commit=commit,
            version=version,
            time=time,
        )
    deliver(FORMATS[chosen](found), output)


def deliver(pieces: Iterable[str] | Iterable[bytes], file: Path | None) -> None:
    """Write a result piece by piece, to a file or to standard output."""
    try:
        with _opened(file) as stream:
            for piece in pieces:
                stream.write(_encoded(piece, file))
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        goal = "the output" if file is None else f"'{file}'"
        raise StorageFailure(f"cannot write {goal}: {failure.strerror}", kind="output") from failure


def _opened(file: Path | None) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdout.buffer) if file is None else file.open("wb")


def _encoded(piece: str | bytes, file: Path | None) -> bytes:
    """Text for a terminal is in the terminal's encoding, with escapes for what that does not have."""
    if isinstance(piece, bytes):
        return piece
    return piece.encode("utf-8" if file is not None else sys.stdout.encoding, "backslashreplace")
