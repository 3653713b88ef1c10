"""Wrong usage with `--json`: of every command an object on standard error, and exit 2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from omnigraph.cli.main import app, main


def commands() -> Iterator[tuple[str, ...]]:
    root = get_command(app)
    yield from _below(root, root.make_context("omnigraph", [], resilient_parsing=True), ())


def _below(command: Any, context: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield words
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            inner = child.make_context(name, [], parent=context, resilient_parsing=True)
            yield from _below(child, inner, (*words, name))


def run_misused(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    found: dict[str, Any] = json.loads(line)
    assert (found["code"], found["retryable"]) == ("usage", False)
    assert found["error"]
    assert found["remedy"].startswith("see `omnigraph")
    return found


def test_an_unknown_option_is_reported_as_json_by_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in commands():
        found = run_misused(capsys, *words, "--no-such-option")
        assert "--no-such-option" in found["error"], words


def test_unknown_commands_and_missing_arguments_are_reported_as_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "No such command 'querry'" in run_misused(capsys, "querry")["error"]
    assert "No such command 'lst'" in run_misused(capsys, "commit", "lst")["error"]
    assert "Missing argument" in run_misused(capsys, "blob", "get")["error"]
    assert "Missing option '--schema'" in run_misused(capsys, "init", "here")["error"]
    assert "'xml' is not" in run_misused(capsys, "export", "x", "--format", "xml")["error"]
    assert "unexpected extra argument" in run_misused(capsys, "version", "extra")["error"]


def test_wrong_usage_never_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["\x1b[31mred"], ["version", "--\x1b]0;x\x07"], ["export", "x", "--format", "\x1b[2J"]):
        for more in ([], ["--json"]):
            assert main([*words, *more]) == 2
            shown = capsys.readouterr()
            assert not set(shown.err + shown.out) & {"\x1b", "\x07"}
