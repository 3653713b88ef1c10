"""The prompt of `omnigraph shell`: history, completion from the schema, inputs over several lines, paging."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from omnigraph.cli.config_file import config_path
from omnigraph.cli.output import print_error, print_note, print_text
from omnigraph.cli.shell_commands import COMMANDS, run_input
from omnigraph.cli.shell_session import Session, is_complete
from omnigraph.errors import CompileError, OmnigraphError
from omnigraph.lang.assist.query_assist import complete_query
from omnigraph.lang.assist.reading import read_tokens, split_at
from omnigraph.lang.source import Source

HISTORY = "shell_history"
PAGERS = ("less -FRSX", "more")


def talk(session: Session) -> None:
    """Read and run inputs until the person ends the session; a failure is shown and ends nothing."""
    session.page = show
    config = config_path()
    prompt = make_prompt(session, None if config is None else config.parent / HISTORY)
    print_note(f"omnigraph shell in {session.uri}; \\? for help, \\q to end")
    while True:
        try:
            text = prompt.prompt(session.prompt)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            if not run_input(session, text):
                return
        except OmnigraphError as error:
            print_error(error, as_json=False)
        except KeyboardInterrupt:
            print_note("interrupted")


def make_prompt(session: Session, history: Path | None) -> PromptSession[str]:
    """Return the prompt of a session, with the inputs of earlier ones where there is a file for them."""
    if history is not None:
        history.parent.mkdir(parents=True, exist_ok=True)
        history.touch(mode=0o600)
    keys = KeyBindings()
    made: PromptSession[str] = PromptSession(
        history=None if history is None else FileHistory(str(history)),
        completer=SchemaCompleter(session),
        complete_while_typing=False,
        multiline=True,
        key_bindings=keys,
        prompt_continuation=lambda width, _line, _wrapped: "." * (width - 1) + " ",
    )

    @keys.add("enter", filter=Condition(lambda: is_complete(made.default_buffer.text + "\n")))
    def accept(event: KeyPressEvent) -> None:
        """Run an input that is complete; others get another line."""
        event.current_buffer.validate_and_handle()

    return made


class SchemaCompleter(Completer):
    """Completes commands, and queries by the schema of the graph."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield what may follow the cursor."""
        written = document.text_before_cursor
        if written.lstrip().startswith("\\"):
            yield from self._commands(written.lstrip())
            return
        try:
            source = Source(document.text)
        except CompileError:
            return
        offset = document.cursor_position
        _, word = split_at(read_tokens(source), offset)
        for item in complete_query(source, offset, self._session.graph.schema):
            yield Completion(item.label, -len(word), display_meta=item.detail)

    def _commands(self, written: str) -> Iterable[Completion]:
        name, space, word = written[1:].partition(" ")
        if not space:
            known = [one for one in (*COMMANDS, "q") if one.startswith(name)]
            yield from (Completion(one, -len(name)) for one in known)
            return
        schema = self._session.graph.schema
        choices = {"d": [*schema.nodes, *schema.edges], "b": self._session.graph.branches.list()}
        found = [one for one in choices.get(name, ()) if one.startswith(word)]
        yield from (Completion(one, -len(word)) for one in found)


def show(text: str) -> None:
    """Print a text, page by page where it is longer than the terminal."""
    if text.count("\n") < shutil.get_terminal_size().lines or not sys.stdout.isatty():
        print_text(text)
        return
    for pager in filter(None, (os.environ.get("PAGER"), *PAGERS)):
        command = shlex.split(pager)
        if command and shutil.which(command[0]):
            subprocess.run(command, input=text, text=True, check=False)
            return
    print_text(text)
