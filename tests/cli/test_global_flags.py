"""Flags that every command takes: where they may stand, and which commands refuse which."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from omnigraph import __version__
from omnigraph.cli.capabilities import CAPABILITIES
from omnigraph.cli.commands import COMMANDS
from omnigraph.cli.main import main

Run = Callable[..., str]
Refused = Callable[..., tuple[str, str]]

FLAGS = ("--server", "--cluster", "--graph", "--store", "--as", "--profile")
DATA, DIRECT, LOCAL, SERVED = "data", "direct (storage-native)", "local", "served"
READS = {"--server", "--graph", "--store", "--profile"}
WRITES = {*READS, "--as"}
UPKEEP = {"--cluster", "--graph", "--store", "--profile"}

MATRIX: dict[str, tuple[str, set[str]]] = {
    "query -e x": (DATA, READS),
    "explain -e x": (DATA, READS),
    "diff a b": (DATA, READS),
    "commit list": (DATA, READS),
    "commit show x": (DATA, READS),
    "commit changes x": (DATA, READS),
    "changes": (DATA, READS),
    "mutate -e x": (DATA, WRITES),
    "load --data x --mode append": (DATA, WRITES),
    "branch create b": (DATA, WRITES),
    "branch list": (DATA, WRITES),
    "branch delete b": (DATA, WRITES),
    "branch merge b": (DATA, WRITES),
    "snapshot": (DATA, WRITES),
    "export -o x": (DATA, WRITES),
    "schema show": (DATA, WRITES),
    "schema apply --schema x": (DATA, WRITES),
    "schema plan --schema x": (DIRECT, {"--store", "--profile"}),
    "optimize": (DIRECT, UPKEEP),
    "repair": (DIRECT, UPKEEP),
    "cleanup --keep 1": (DIRECT, UPKEEP),
    "lint --query x": (DIRECT, UPKEEP),
    "doctor": (DIRECT, UPKEEP),
    "recover": (DIRECT, UPKEEP),
    "init --schema x y": (DIRECT, set()),
    "embed": (DIRECT, {*UPKEEP, "--as"}),
    "algorithm pagerank": (DIRECT, {*UPKEEP, "--as"}),
    "graphs list": (SERVED, {"--server", "--profile"}),
    "login x --token t": (LOCAL, set()),
    "logout x": (LOCAL, set()),
    "alias x": (LOCAL, set()),
    "profile list": (LOCAL, set()),
    "profile show": (LOCAL, set()),
    "version": (LOCAL, set()),
}


GROUPS = ("algorithm", "branch", "commit", "schema", "profile", "graphs")
"""Commands whose first two words are their name."""


@pytest.mark.parametrize("line", MATRIX)
def test_a_flag_that_a_command_cannot_use_is_refused(line: str, refused: Refused, tmp_path: Path) -> None:
    kind, usable = MATRIX[line]
    words = line.split()
    name = " ".join(words[:2]) if words[0] in GROUPS else words[0]
    nowhere = str(tmp_path / "nowhere")
    for flag in FLAGS:
        code, message = refused(*words, flag, nowhere)
        if flag not in usable:
            assert message.startswith(f"`{name}` is a {kind} command; {flag} ")
            assert " not apply." in message
        elif flag == "--store":
            assert code == "graph_not_found"
        elif flag == "--profile":
            assert message == f"there is no profile '{nowhere}'"
        elif flag == "--server":
            assert message == f"there is no server '{nowhere}'"
        elif flag == "--cluster":
            assert code == "cluster_unreadable"
        else:
            assert message == "no graph addressed"


CONTROL = "cluster control"
DECLARED = {"--cluster", "--graph", "--profile"}

REFUSALS: dict[str, tuple[str, set[str]]] = {
    "blob get node T i p": (DATA, READS),
    "blob stat node T i p": (DATA, READS),
    "blame T i": (DATA, READS),
    "changes poll": (DATA, READS),
    "changes baseline --out x": (DATA, READS),
    "log": (DATA, READS),
    "show x": (DATA, READS),
    "status": (DATA, READS),
    "cherry-pick x": (DATA, WRITES),
    "reset --to x": (DATA, WRITES),
    "revert x": (DATA, WRITES),
    "schema get": (DATA, WRITES),
    "tag create x": (DATA, WRITES),
    "tag delete x": (DATA, WRITES),
    "tag list": (DATA, WRITES),
    "mcp": (DATA, WRITES),
    "shell": (DATA, WRITES),
    "algorithm connected-components": (DIRECT, {*UPKEEP, "--as"}),
    "algorithm degree": (DIRECT, {*UPKEEP, "--as"}),
    "algorithm label-propagation": (DIRECT, {*UPKEEP, "--as"}),
    "algorithm shortest-paths": (DIRECT, {*UPKEEP, "--as"}),
    "algorithm triangle-count": (DIRECT, {*UPKEEP, "--as"}),
    "sql": (DIRECT, UPKEEP),
    "copy a b": (DIRECT, set()),
    "serve": (DIRECT, {"--cluster", "--store", "--profile"}),
    "ui": (DIRECT, {"--store", "--profile", "--as"}),
    **dict.fromkeys(
        ("cluster apply", "cluster approve x"),
        (CONTROL, {"--as"}),
    ),
    **dict.fromkeys(
        ("cluster init x", "cluster validate", "cluster plan", "cluster status", "cluster refresh"),
        (CONTROL, set()),
    ),
    **dict.fromkeys(("cluster import", "cluster force-unlock x"), (CONTROL, set())),
    "policy validate": (CONTROL, DECLARED),
    "policy test --tests x": (CONTROL, DECLARED),
    "policy explain --actor a --action read": (CONTROL, DECLARED),
    "queries list": (CONTROL, DECLARED),
    "queries validate": (CONTROL, DECLARED),
    **dict.fromkeys(
        ("pipeline validate x", "pipeline plan x", "pipeline run x", "pipeline retry x y", "pipeline list"),
        (LOCAL, {"--as", "--cluster"}),
    ),
    **dict.fromkeys(
        ("pipeline runs x", "pipeline status x y", "pipeline show x", "pipeline reset-checkpoint x"),
        (LOCAL, {"--as", "--cluster"}),
    ),
    "pipeline force-unlock x y": (LOCAL, {"--as", "--cluster"}),
    "completion bash": (LOCAL, set()),
    "lsp": (LOCAL, set()),
    "schema infer x": (LOCAL, set()),
    **dict.fromkeys(("spark start", "spark stop", "spark status", "spark doctor"), (LOCAL, set())),
}
"""Further commands, whose use of the other flags is tested where they are."""


@pytest.mark.parametrize("line", REFUSALS)
def test_every_command_refuses_flags_that_it_cannot_use(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, usable = REFUSALS[line]
    for flag in FLAGS:
        if flag not in usable:
            assert main([*line.split(), flag, "x"]) == 1
            message = capsys.readouterr().err
            assert f"`{name_of(line)}` is a {kind} command; {flag} " in message
            assert " not apply." in message


def test_the_tables_name_every_command() -> None:
    assert {name_of(line) for line in (*MATRIX, *REFUSALS)} >= all_commands()


def name_of(line: str) -> str:
    """Return the command of a line: as many words as are the name of one."""
    words = line.split()
    found = (" ".join(words[:end]) for end in (2, 1))
    return next((name for name in found if name in all_commands()), words[0])


@cache
def all_commands() -> frozenset[str]:
    return frozenset(path.strip() for path, _ in list_leaves())


def list_leaves() -> list[tuple[str, Any]]:
    """Return every command that does something, with its path."""
    from typer import Context
    from typer.core import TyperGroup
    from typer.main import get_command

    from omnigraph.cli.main import app

    def leaves(command: Any, path: str) -> list[tuple[str, Any]]:
        if not isinstance(command, TyperGroup):
            return [(path, command)]
        found = ((name, command.get_command(Context(command), name)) for name in command.commands)
        return [leaf for name, child in found for leaf in leaves(child, f"{path} {name}")]

    return leaves(get_command(app), "")


def test_of_several_such_flags_the_first_in_a_fixed_order_is_reported(refused: Refused) -> None:
    given = [word for flag in reversed(FLAGS) for word in (flag, "x")]
    for flag in FLAGS:
        assert f"; {flag} " in refused("init", "x", "--schema", "y", *given)[1]
        at = given.index(flag)
        del given[at : at + 2]


def test_an_alias_names_all_of_them(refused: Refused) -> None:
    message = refused("alias", "x", "--store", "s", "--as", "me")[1]
    assert message == "`alias` is a local command; --store, --as do not apply."


def test_every_command_has_a_kind() -> None:
    assert set(COMMANDS) <= {name.partition(" ")[0] for name in CAPABILITIES}


@pytest.mark.parametrize(
    "line",
    ["--store {} branch list", "branch --store {} list", "branch list --store {}", "branch list --store={}"],
)
def test_a_flag_may_stand_before_and_after_the_command(uri: str, line: str, run: Run) -> None:
    assert run(*line.format(uri).split()) == "main\n"


def test_the_last_one_given_holds(uri: str, run: Run) -> None:
    assert run("--store", "/nowhere", "branch", "list", "--store", uri) == "main\n"


def test_flags_of_one_run_are_gone_in_the_next(uri: str, run: Run, refused: Refused) -> None:
    run("--store", uri, "branch", "list")
    assert refused("branch", "list")[1] == "no graph addressed"


def test_a_change_is_reported_unless_quiet_wherever_it_stands(
    uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--quiet", "--store", uri, "branch", "create", "work"]) == 0
    assert capsys.readouterr().err == ""


def test_a_yes_before_the_command_counts(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    assert refused("--yes", "branch", "delete", "work", "--uri", "s3://b/g")[0] == "storage_failure"


@pytest.mark.parametrize("line", ["--version", "-v", "branch -v", "branch list --version", "query -v"])
def test_the_version_is_printed_anywhere(line: str, run: Run) -> None:
    assert run(*line.split()) == f"omnigraph {__version__}\n"


def test_help_of_a_command_shows_what_makes_a_difference_to_it(run: Run) -> None:
    shown = {
        line: run(*line.split(), "--help") for line in ("query", "load", "optimize", "init", "branch list")
    }
    for flag, where in {
        "--store": {"query", "load", "optimize", "branch list"},
        "--profile": {"query", "load", "optimize", "branch list"},
        "--as": {"load"},
        "--yes": {"load"},
        "--quiet": {"load", "optimize"},
        "--server": {"query", "load", "branch list"},
        "--graph": {"query", "load", "optimize", "branch list"},
        "--cluster": {"optimize"},
        "--debug": set[str](),
    }.items():
        assert {line for line, text in shown.items() if f" {flag} " in text} == where


def test_help_lists_commands_by_what_they_are_about(run: Run) -> None:
    text = run("--help")
    sections = [line for line in text.splitlines() if line.endswith(" commands:")]
    planes = ("Data", "Storage", "Pipeline", "Cluster", "Local")
    assert sections == [f"{plane} commands:" for plane in planes]
    data, storage = text.partition("Storage commands:")[::2]
    assert "  query " in data
    assert "  optimize " in storage


def test_every_command_can_print_json(run: Run) -> None:
    every = list_leaves()
    assert len(every) > 25
    silent = {path for path, leaf in every if not any("--json" in param.opts for param in leaf.params)}
    assert silent == {" lsp", " mcp", " serve", " shell", " ui"}, "a server or a prompt has no result"
