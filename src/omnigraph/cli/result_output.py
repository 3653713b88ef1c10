"""Writes a query result in the chosen format, to a file or standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from omnigraph.cli.config_file import current_config
from omnigraph.cli.formats import FORMATS, Format, table
from omnigraph.display.grid import Layout
from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest, StorageFailure
from omnigraph.query.result import Result

Form = Annotated[
    Format | None,
    typer.Option("--format", help="How to print what was found: as a table, if nothing else is configured."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.", metavar="FILE")]


def choose_format(
    form: Format | None, output: Path | None, *, as_json: bool, preferred: str | None = None
) -> Format:
    """Return the format of the options, else that of the alias, else that of the config file."""
    if output is not None:
        require_output(output)  # before the query runs
    chosen = Format.JSON if as_json else form or Format(preferred or current_config().defaults.output)
    if chosen is Format.ARROW and output is None and sys.stdout.isatty():
        raise BadRequest("the arrow format is not for a terminal", remedy="name a file with --output")
    return chosen


def write_result(found: Result, form: Format, file: Path | None = None) -> None:
    """Write a result piece by piece, to a file or to standard output."""
    if file is not None:
        require_output(file)
    try:
        with _open_output(file) as stream:
            for piece in _pieces(found, form):
                stream.write(_encode(piece, file))
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        goal = "the output" if file is None else f"'{file}'"
        raise StorageFailure(f"cannot write {goal}: {failure.strerror}", kind="output") from failure


def _pieces(found: Result, form: Format) -> Iterable[str] | Iterable[bytes]:
    if form is not Format.TABLE:
        return FORMATS[form](found)
    defaults = current_config().defaults
    return table(found, Layout(defaults.table_max_column_width, defaults.table_cell_layout == "wrap"))


def _open_output(file: Path | None) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdout.buffer) if file is None else file.open("wb")


def _encode(piece: str | bytes, file: Path | None) -> bytes:
    """Text for a terminal is in the terminal's encoding, with escapes for what that does not have."""
    if isinstance(piece, bytes):
        return piece
    return piece.encode("utf-8" if file is not None else sys.stdout.encoding, "backslashreplace")
