"""Entry point of the `omnigraph` command: run it, and turn failures into messages and exit codes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from traceback import format_exception

from typer.main import get_command

from omnigraph.cli.former import in_present_words
from omnigraph.cli.global_flags import (
    As,
    Cluster,
    Debug,
    GraphId,
    ProfileName,
    Quiet,
    Server,
    Store,
    Version,
    Yes,
)
from omnigraph.cli.invocation import begin, current
from omnigraph.cli.lazy import LazyGroup, new_app
from omnigraph.cli.output import prepare_streams, print_error, print_note
from omnigraph.cli.pandas_later import import_pandas_later
from omnigraph.cli.start import INTERRUPTED
from omnigraph.errors import InternalError, OmnigraphError

FAILED = 1
COMPLETE_SETTING = "_OMNIGRAPH_COMPLETE"

_READING = frozenset(
    {"blob", "changes", "commit", "diff", "doctor", "explain", "export", "lint", "query", "snapshot"}
)
"""Commands that write nothing to a graph."""

app = new_app(cls=LazyGroup)


@app.callback()
def omnigraph(
    store: Store = None,
    profile: ProfileName = None,
    actor: As = None,
    yes: Yes = False,
    quiet: Quiet = False,
    server: Server = None,
    cluster: Cluster = None,
    graph: GraphId = None,
    version: Version = False,
    debug: Debug = False,
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
        _tell_interrupted(given)
        status = INTERRUPTED
    return status if _output_arrived() else FAILED


def _run(arguments: list[str]) -> int:
    begin()
    try:
        if COMPLETE_SETTING in os.environ:
            _learn_shells()
        get_command(app).main(args=in_present_words(arguments), prog_name="omnigraph")
    except OmnigraphError as error:
        return _failed(error, error, arguments)
    except SystemExit as end:
        if end.code == INTERRUPTED:
            _tell_interrupted(arguments)
        return end.code if isinstance(end.code, int) else FAILED
    except BrokenPipeError:
        raise
    except Exception as bug:  # noqa: BLE001 - whatever it is, it ends here, as a failure and in words
        told = InternalError(
            f"this is a mistake in omnigraph: {type(bug).__name__}: {bug}",
            remedy="run it again with --debug for the whole stack, and report it with that",
        )
        return _failed(told, bug, arguments)
    return 0


def _failed(told: OmnigraphError, cause: Exception, arguments: list[str]) -> int:
    if _asks_for("--debug", arguments):
        print_note("".join(format_exception(cause)))
    print_error(told, as_json=_asks_for("--json", arguments))
    return FAILED


def _tell_interrupted(arguments: list[str]) -> None:
    """One line; what a command had not begun to commit is not there, and the rest is for recovery to end."""
    if _asks_for("--json", arguments):
        print_note('{"event": "interrupted"}')
        return
    run = current()
    left = None if run.command.partition(" ")[0] in _READING else run.when_interrupted
    print_note("interrupted" if left is None else f"interrupted: {left}")


def _learn_shells() -> None:
    """Let Typer answer a shell that asks how a line may go on."""
    from typer import completion

    vars(completion)["completion_init"]()


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


def command() -> int:
    """The `omnigraph` command: a process of our own."""
    import_pandas_later()
    status = main()
    if status == INTERRUPTED and _is_a_query_left():
        os._exit(status)  # the end of the process would wait for it
    return status


def _is_a_query_left() -> bool:
    """Whether a long step of a query is still at work, though nobody waits for its answer."""
    if threading.active_count() == 1:
        return False
    from omnigraph.query.interrupt import is_anything_left

    return is_anything_left()


if __name__ == "__main__":
    sys.exit(command())
