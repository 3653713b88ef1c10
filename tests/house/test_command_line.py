"""What every command shares: exit codes, error output, and manners in a pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from omnigraph import __version__
from omnigraph.cli.main import main

FAILING_COMMAND = """
    from omnigraph.cli.command_groups import new_app
    from omnigraph.cli.options import AsJson
    from omnigraph.diagnostics import Diagnostic
    from omnigraph.errors import BranchNotFound, ParseError

    app = new_app()
    REPLY

    @app.command()
    def reply(as_json: AsJson = False) -> None:
        act()
"""

RUNNER = """
import sys
from omnigraph.cli.commands import Command
from omnigraph.cli.command_groups import LazyGroup
LazyGroup.table = {"reply": Command("reply_command:app", "Answer.")}
from omnigraph.cli.main import main
raise SystemExit(main())
"""


def omnigraph(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "omnigraph.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def command_that(folder: Path, body: str) -> list[str]:
    """A real command line whose only command, `reply`, runs `body`."""
    act = "def act():\n" + textwrap.indent(textwrap.dedent(body), "    ")
    source = textwrap.dedent(FAILING_COMMAND).replace("REPLY", act)
    (folder / "reply_command.py").write_text(source, encoding="utf-8")
    return [sys.executable, "-c", RUNNER, "reply"]


def run_in(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_version_is_the_same_in_every_form() -> None:
    text = f"omnigraph {__version__}\n"
    assert omnigraph("--version").stdout == text
    assert omnigraph("-v").stdout == text
    assert omnigraph("version").stdout.startswith(text)
    assert json.loads(omnigraph("version", "--json").stdout)["version"] == __version__


@pytest.mark.parametrize("arguments", [["no-such"], ["version", "--no-such"], ["version", "extra"]])
def test_wrong_usage_exits_with_2_and_prints_nothing_on_stdout(arguments: list[str]) -> None:
    done = omnigraph(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage: omnigraph" in done.stderr


def test_a_mistyped_command_gets_a_suggestion() -> None:
    assert "Did you mean 'version'?" in omnigraph("versoin").stderr


def test_an_error_prints_its_code_message_and_remedy_and_exits_with_1(tmp_path: Path) -> None:
    done = run_in(tmp_path, command_that(tmp_path, "raise BranchNotFound('draft')"))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error[branch_not_found]: branch 'draft' not found\n"
        "  help: list the branches with `omnigraph branch list` (`graph.branches`)\n"
    )


def test_with_json_an_error_is_one_object_on_stderr(tmp_path: Path) -> None:
    done = run_in(tmp_path, [*command_that(tmp_path, "raise BranchNotFound('draft')"), "--json"])
    assert done.returncode == 1
    assert done.stdout == ""
    assert json.loads(done.stderr) == {
        "error": "branch 'draft' not found",
        "code": "branch_not_found",
        "retryable": False,
        "remedy": "list the branches with `omnigraph branch list` (`graph.branches`)",
        "data": {"branch": "draft"},
    }


def test_an_error_in_a_text_underlines_the_place(tmp_path: Path) -> None:
    body = """
        where = dict(line=3, column=6, start=40, end=46, source_line="node Persn {", width=5)
        raise ParseError([Diagnostic("unknown word", **where, source_name="team.pg")])
    """
    done = run_in(tmp_path, command_that(tmp_path, body))
    assert done.returncode == 1
    assert "team.pg:3:6" in done.stderr
    assert "3 | node Persn {\n  |      ^^^^^\n" in done.stderr


def test_text_beyond_the_terminal_encoding_prints_as_escapes(tmp_path: Path) -> None:
    body = r"raise BranchNotFound('\ud800 \N{GRINNING FACE}')"
    command = [*command_that(tmp_path, body), "--json"]
    for encoding in ("utf-8", "ascii"):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONIOENCODING": encoding}
        done = subprocess.run(command, capture_output=True, check=False, env=environment)
        assert done.returncode == 1
        assert json.loads(done.stderr)["data"] == {"branch": "\ud800 \N{GRINNING FACE}"}


def test_a_bug_is_not_dressed_up_as_an_error_of_the_user(tmp_path: Path) -> None:
    command = command_that(tmp_path, "raise ZeroDivisionError('by nothing')")
    done = run_in(tmp_path, command)
    assert done.returncode == 1
    assert done.stderr == (
        "error[internal]: this is a mistake in omnigraph: ZeroDivisionError: by nothing\n"
        "  help: run it again with --debug for the whole stack, and report it with that\n"
    )
    assert "Traceback" in run_in(tmp_path, [*command, "--debug"]).stderr


@pytest.mark.parametrize("arguments", [["--help"], ["version"], ["version", "--json"]])
def test_a_reader_that_left_ends_the_command_without_noise(arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "omnigraph.cli.main", *arguments]
    try:
        done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write_end)
    assert done.returncode == 1
    assert done.stderr == ""


def test_ctrl_c_ends_the_command_with_130_and_no_traceback(tmp_path: Path) -> None:
    # A shell that started the tests in its background made them ignore the signal.
    body = """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print("running", flush=True)
        signal.pause()
    """
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        command_that(tmp_path, body),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGINT)
        _, messages = child.communicate()
    assert child.returncode == 130
    assert messages == (
        "interrupted: what was committed by then stays, see `omnigraph commit list`; "
        "a commit that did not come to its end is finished or undone by the next write\n"
    )


@pytest.mark.parametrize("group", ["branch", "pipeline"])
def test_the_help_of_a_group_says_whole_sentences(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([group, "--help"]) == 0
    commands = capsys.readouterr().out.partition("Commands:\n")[2]
    assert "..." not in commands
    assert commands.rstrip().endswith(".")


INTERRUPTED_WHILE_IMPORTING = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Interrupt(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == WHEN:
            os.kill(os.getpid(), signal.SIGINT)

# A shell that started the tests in its background made them ignore the signal.
signal.signal(signal.SIGINT, HANDLER)
sys.meta_path.insert(0, Interrupt())
from omnigraph.cli.start import command
sys.exit(command())
"""


def run_interrupted(when: str, handler: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = INTERRUPTED_WHILE_IMPORTING.replace("WHEN", repr(when)).replace("HANDLER", f"signal.{handler}")
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("when", ["typer", "omnigraph.errors", "omnigraph.cli.version"])
def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_word(when: str) -> None:
    done = run_interrupted(when, "default_int_handler", "version")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_a_command_that_ignores_ctrl_c_in_the_background_goes_on() -> None:
    done = run_interrupted("typer", "SIG_IGN", "--version")
    assert (done.returncode, done.stdout) == (0, f"omnigraph {__version__}\n")


@pytest.mark.parametrize(
    ("does", "output"),
    [
        ("when_interrupted = \"'out.ndjson' is as it was\"", "interrupted: 'out.ndjson' is as it was\n"),
        ("command = 'query'", "interrupted\n"),
    ],
)
def test_ctrl_c_once_a_command_runs_is_reported_with_what_the_command_says(
    tmp_path: Path, does: str, output: str
) -> None:
    body = f"""
        from omnigraph.cli.invocation import current_invocation
        current_invocation().{does}
        raise KeyboardInterrupt
    """
    assert run_in(tmp_path, command_that(tmp_path, body)).stderr == output
