"""Entry point of the `omnigraph` command: run it, and turn failures into messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from traceback import format_exception
from typing import Annotated

import typer
from typer.main import get_command

from omnigraph import __version__
from omnigraph.cli.lazy import LazyGroup, new_app
from omnigraph.cli.output import prepare_streams, print_error, print_note, print_text
from omnigraph.errors import OmnigraphError

FAILED = 1
INTERRUPTED = 130

app = new_app(cls=LazyGroup)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_text(f"omnigraph {__version__}")
        raise typer.Exit


@app.callback()
def omnigraph(
    version: Annotated[
        bool,
        typer.Option("--version", "-v", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole stack of a failure, of Spark's side as well.")
    ] = False,
) -> None:
    """A graph database that lives in a folder or a bucket."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; wrong usage exits with 2, every other failure with 1."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    try:
        status = _run(given)
    except BrokenPipeError:
        status = FAILED
    except KeyboardInterrupt:
        status = INTERRUPTED
    return status if _output_arrived() else FAILED


def _run(arguments: list[str]) -> int:
    try:
        get_command(app).main(args=arguments, prog_name="omnigraph")
    except OmnigraphError as error:
        if _asks_for("--debug", arguments):
            print_note("".join(format_exception(error)))
        print_error(error, as_json=_asks_for("--json", arguments))
        return FAILED
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else FAILED
    return 0


def _asks_for(option: str, arguments: list[str]) -> bool:
    """Read from the arguments, because a failure may come before they are parsed."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return option in options


def _output_arrived() -> bool:
    """Flush here, because a failure in the interpreter's own last flush could only be noise."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
