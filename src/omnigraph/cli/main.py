"""Entry point of the `omnigraph` command: run it, and turn failures into messages and exit codes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from io import StringIO
from traceback import format_exception
from typing import Any

import typer
from typer.main import get_command

from omnigraph.cli.capabilities import CLAUSES
from omnigraph.cli.command_groups import LazyGroup, new_app
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
from omnigraph.cli.invocation import begin_invocation, current_invocation
from omnigraph.cli.output import prepare_streams, print_error, print_note
from omnigraph.cli.sigint import INTERRUPTED
from omnigraph.diagnostics import printable
from omnigraph.errors import BadRequest, InternalError, OmnigraphError, WrongUsage

DEPRECATED = {
    ("query", "lint"): "lint",
    ("query", "check"): "lint",
    ("check",): "lint",
    ("read",): "query",
    ("change",): "mutate",
    ("ingest",): "load",
}
WITH_QUERIES = ("query", "read", "mutate", "change", "explain")


def rewrite_deprecated(arguments: list[str]) -> list[str]:
    """Return the arguments with the current name of the command."""
    at = _command_at(arguments)
    words = tuple(arguments[at : at + 2])
    _refuse_old_flags(words[:1], arguments)
    for length in (2, 1):
        present = DEPRECATED.get(words[:length])
        if present is not None:
            return _rename_command(arguments, at, length, present)
    return arguments


def _command_at(arguments: list[str]) -> int:
    """Where the command stands: after the flags before it, and their values."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in CLAUSES else 1
    return at


def _rename_command(arguments: list[str], at: int, length: int, present: str) -> list[str]:
    old = " ".join(arguments[at : at + length])
    print_note(f"warning: `omnigraph {old}` is deprecated; use `omnigraph {present}`")
    rest = arguments[at + length :]
    # An ingest merged into its branch, and created it if missing.
    implied = {"--mode": "merge", "--from": "main"} if old == "ingest" else {}
    added = [word for flag, value in implied.items() if not _has_flag(flag, rest) for word in (flag, value)]
    return [*arguments[:at], present, *added, *rest]


def _has_flag(flag: str, arguments: list[str]) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in arguments)


def _refuse_old_flags(command: tuple[str, ...], arguments: list[str]) -> None:
    if command and command[0] in WITH_QUERIES and _has_flag("--alias", arguments):
        raise BadRequest(
            "--alias was removed", remedy="define aliases in the config file and use `omnigraph alias NAME`"
        )
    for flag, value in zip(arguments, [*arguments[1:], ""], strict=False):
        name, _, joined = flag.partition("=")
        if name == "--config" and (joined or value).endswith("omnigraph.yaml"):
            raise BadRequest(
                "omnigraph.yaml is not read any more",
                remedy="put profiles and aliases into ~/.omnigraph/config.yaml",
            )


FAILED = 1
ClickFailure: Any = typer.BadParameter.__mro__[2]
"""What Typer raises for wrong usage; it has the class in a private module."""
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
        status = _run_command(given)
    except BrokenPipeError:
        status = FAILED
    except KeyboardInterrupt:
        _report_interrupt(given)
        status = INTERRUPTED
    return status if _flush_output() else FAILED


def _run_command(arguments: list[str]) -> int:
    begin_invocation()
    try:
        if COMPLETE_SETTING in os.environ:
            _enable_completion()
        words = rewrite_deprecated(arguments)
        ended = get_command(app).main(args=words, prog_name="omnigraph", standalone_mode=False)
        return _finish(ended or 0, arguments)
    except OmnigraphError as error:
        return _report_failure(error, error, arguments)
    except SystemExit as end:
        return _finish(end.code, arguments)
    except ClickFailure as wrong:
        return _report_misuse(wrong, arguments)
    except typer.Abort:
        print_note("Aborted!")
        return FAILED
    except BrokenPipeError:
        raise
    except Exception as bug:  # noqa: BLE001 - whatever it is, it ends here, as a failure and in words
        problem = InternalError(
            f"this is a mistake in omnigraph: {type(bug).__name__}: {bug}",
            remedy="run it again with --debug for the whole stack, and report it with that",
        )
        return _report_failure(problem, bug, arguments)


def _finish(status: object, arguments: list[str]) -> int:
    if status == INTERRUPTED:
        _report_interrupt(arguments)
    return status if isinstance(status, int) else FAILED


def _report_misuse(wrong: Any, arguments: list[str]) -> int:
    """A command, option or argument that is wrong: with a line on how it is used, or as JSON."""
    if _asks_for("--json", arguments):
        print_error(_as_error(wrong), as_json=True)
    else:
        shown = StringIO()
        wrong.show(file=shown)
        hint = _explain(wrong)
        note = "" if hint is None else f"  help: {hint}\n"
        print_note(printable(f"{shown.getvalue().replace('Value error, ', '', 1)}{note}".rstrip("\n")))
    return int(wrong.exit_code)


def _explain(wrong: Any) -> str | None:
    from omnigraph.cli.foreign_commands import explain_misuse  # only mistakes need it

    return explain_misuse(wrong.format_message(), _command_path(wrong))


def _command_path(wrong: Any) -> str:
    context = getattr(wrong, "ctx", None)
    return "omnigraph" if context is None else str(context.command_path)


def _as_error(wrong: Any) -> WrongUsage:
    path = _command_path(wrong)
    if type(wrong).__name__ == "NoArgsIsHelpError":  # its message is the whole help
        return WrongUsage(f"`{path}` needs a command or an argument", remedy=f"see `{path} --help`")
    hint = _explain(wrong)
    also = "" if hint is None else f"; {hint}"
    message = wrong.format_message().replace("Value error, ", "", 1)
    return WrongUsage(message, remedy=f"see `{path} --help`{also}")


def _report_failure(problem: OmnigraphError, cause: Exception, arguments: list[str]) -> int:
    if _asks_for("--debug", arguments):
        print_note("".join(format_exception(cause)))
    print_error(problem, as_json=_asks_for("--json", arguments))
    return FAILED


def _report_interrupt(arguments: list[str]) -> None:
    """One line; what a command had not begun to commit is not there, and the rest is for recovery to end."""
    if _asks_for("--json", arguments):
        print_note('{"event": "interrupted"}')
        return
    run = current_invocation()
    left = None if run.command.partition(" ")[0] in _READING else run.when_interrupted
    print_note("interrupted" if left is None else f"interrupted: {left}")


def _enable_completion() -> None:
    """Let Typer answer a shell that asks how a line may go on."""
    from typer import completion

    vars(completion)["completion_init"]()


def _asks_for(option: str, arguments: list[str]) -> bool:
    """Read from the arguments, because a failure may come before they are parsed."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return option in options


def _flush_output() -> bool:
    """Flush here, because a failure in the interpreter's own last flush could only be noise."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True


def command() -> int:
    """The `omnigraph` command: a process of our own."""
    status = main()
    if status == INTERRUPTED and _is_query_running():
        os._exit(status)  # the end of the process would wait for it
    return status


def _is_query_running() -> bool:
    """Whether a step of an abandoned query still runs."""
    if threading.active_count() == 1:
        return False
    from omnigraph.query.interrupt import has_abandoned_work

    return has_abandoned_work()


if __name__ == "__main__":
    sys.exit(command())
