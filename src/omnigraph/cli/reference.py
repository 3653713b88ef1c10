"""Pages that `make docs` writes from the code: the commands, the errors and the Python API."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

import omnigraph
from omnigraph import errors, spark
from omnigraph.cli.main import app
from omnigraph.cli.start import HELP_FILE
from omnigraph.server.pages import render_http

# Fixed, so that the page does not depend on the terminal of the author.
WIDTH = 100
HELP_WIDTH = 78

INTRODUCTION = """\
# Command reference

<!-- Written by `make docs` from the commands themselves; edit their help texts instead. -->

Results go to standard output, messages and errors to standard error. With `--json`, a command prints
its result as JSON, and a failure as a JSON object with `error`, `code`, `retryable` and, where there
are any, `remedy` and `data`; a command that was used wrongly prints such an object too, with the code
`usage`. A failure is one paragraph; `--debug` shows the whole stack. Commands that
take long tell [how far they are](configuration.md#how-far-a-command-is).

The flags of `omnigraph` itself may stand before or after any command; the help of a command shows those
that make a difference to it. What they mean, and how a config file saves typing them, is in
[configuration](configuration.md).

| Exit code | Meaning |
|---|---|
| 0 | success |
| 1 | the command failed |
| 2 | the command was used wrongly |
| 4 | `mutate --if-commit`: the branch has another newest commit, and nothing was written |
| 130 | interrupted with Ctrl-C |
"""


ERRORS_INTRODUCTION = """\
# Errors

<!-- Written by `make docs` from `errors.py`; edit the classes there instead. -->

Every failure is an `omnigraph.errors.OmnigraphError`. Catch a class, or look at `code`, which never
changes its meaning; do not match messages. Each error has `message`, `remedy` (what to do, when there
is something), `retryable` (whether the same call may succeed later), its facts as attributes, all of
them in `data()`, and `to_json()`. It survives pickling, so it crosses process boundaries whole.

Errors about schema and query texts (`CompileError`) carry `diagnostics`: message, code, line, column,
byte span, the source line and a hint; `render()` draws them with the source underlined. One error
holds up to 20 of them.

Below, *status* is what a server answers with; indentation shows which class contains which.

| Class | Code | Status | Retryable | Meaning |
|---|---|---|---|---|
"""


def render_errors() -> str:
    """The page about errors."""
    return ERRORS_INTRODUCTION + "".join(_error_rows(errors.OmnigraphError, 0))


def _error_rows(kind: type[errors.OmnigraphError], depth: int) -> Iterator[str]:
    indent = "&emsp;" * depth
    retryable = "yes" if kind.retryable else "no"
    meaning = (kind.__doc__ or "").splitlines()[0]
    yield f"| {indent}`{kind.__name__}` | `{kind.code}` | {kind.status} | {retryable} | {meaning} |\n"
    for child in kind.__subclasses__():
        yield from _error_rows(child, depth + 1)


def render_commands() -> str:
    """The page about commands."""
    root = get_command(app)
    context = root.make_context("omnigraph", [], resilient_parsing=True, terminal_width=WIDTH)
    return "\n".join([INTRODUCTION, *_render_sections(root, context)])


def render_help() -> str:
    """Return what `omnigraph --help` prints into a terminal of 80 columns or more."""
    root = get_command(app)
    context = root.make_context("omnigraph", [], resilient_parsing=True, terminal_width=HELP_WIDTH)
    return f"{root.get_help(context)}\n"


def _render_sections(command: Any, context: Any) -> Iterator[str]:
    """One section for the command and one for each command below it."""
    help_text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield f"## `{context.command_path}`\n\n```text\n{help_text}\n```\n"
    if not isinstance(command, TyperGroup):
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if child is not None and not child.hidden:
            yield from _render_sections(
                child, child.make_context(name, [], parent=context, resilient_parsing=True)
            )


PYTHON_INTRODUCTION = """\
# Python reference

<!-- Written by `make docs` from `omnigraph.__all__`; edit the themes there and the docstrings instead. -->

Every public name of `import omnigraph as og`, with its docstring; modules not named here are internal.
The [guide](python.md) shows the names in use. `make site` fills in the entries; `help(og.Graph)` in a
terminal prints the same.
"""

INTERNAL_MEMBERS = {
    "omnigraph.Algorithms": ("run_on",),
    "omnigraph.AsyncBlob": ("resolve_range",),
    "omnigraph.Blob": ("resolve_range",),
    "omnigraph.Diff": ("beyond", "comparison", "key_of", "tables"),
    "omnigraph.MergeConflict": ("digest", "mark"),
    "omnigraph.spark.FrameAlgorithms": ("solver",),
    "omnigraph.spark.GraphFrames": ("reads",),
}
"""Members of public classes that only other rooms call."""
INHERITING = ("Algorithms", "Blob", "RemoteDiff", "RemoteSnapshot", "WriteBlock")
"""How names of classes end whose members are partly those of an internal class."""


def render_python() -> str:
    """Return the page about the Python API: an entry for each public name, by theme."""
    themes = {
        theme: [f"omnigraph.{name}" for names in homes.values() for name in names]
        for theme, homes in omnigraph.THEMES.items()
    }
    themes["Errors"] += ["omnigraph.errors.OmnigraphError"]
    themes["Spark"] = [f"omnigraph.spark.{name}" for name in spark.__all__]
    sections = (f"\n## {theme}\n" + "".join(map(_render_entry, paths)) for theme, paths in themes.items())
    return PYTHON_INTRODUCTION + "".join(sections) + "\nAll errors are in [the error index](errors.md).\n"


def _render_entry(path: str) -> str:
    options = []
    if path.endswith(INHERITING):
        options += ["inherited_members: true"]
    if hidden := INTERNAL_MEMBERS.get(path):
        options += [f'filters: ["!^_", "!^({"|".join(hidden)})$"]']
    block = "    options:\n" if options else ""
    return f"\n::: {path}\n" + block + "".join(f"        {option}\n" for option in options)


PAGES = {
    "cli.md": render_commands,
    "errors.md": render_errors,
    "http.md": render_http,
    "reference.md": render_python,
}


def main() -> int:
    """Write the pages into the folder named on the command line, and the help beside the commands."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, render in PAGES.items():
        (folder / name).write_text(render(), encoding="utf-8")
    Path(__file__).with_name(HELP_FILE).write_text(render_help(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
