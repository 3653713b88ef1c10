"""`omnigraph shell`: statements of standard input, and a person at a prompt."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import omnigraph as og
from omnigraph.cli.shell_commands import run_input
from omnigraph.cli.shell_prompt import SchemaCompleter, make_prompt, show, talk
from omnigraph.cli.shell_session import Session, is_complete
from omnigraph.errors import BadRequest, CommitNotFound, OmnigraphError
from tests import python_process

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person { since: I32? }"
NAMES = "match { $p: Person } return { $p.name } order { $p.name };"


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shell") / "people.omni"
    with og.init(place, schema=SCHEMA) as graph:
        graph.load([{"name": "Ada", "age": 36}, {"name": "Bob", "age": 20}], type="Person", mode="append")
        graph.branches.create("draft")
    return place


@pytest.fixture
def session(example: Path, tmp_path: Path) -> Iterator[Session]:
    copied = tmp_path / "people.omni"
    shutil.copytree(example, copied)
    with og.open(copied) as graph:
        made = Session(graph, str(copied), "main", "me")
        made.timing = False
        yield made


def run(session: Session, capsys: pytest.CaptureFixture[str], text: str) -> str:
    assert run_input(session, text)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        (r"\d Person", True),
        ("query q() {", False),
        ("query q() { match { $p: Person } return { $p.name } }", True),
        ("match { $p: Person } return { $p.name }", False),
        ("match { $p: Person } return { $p.name };", True),
        ("match { $p: Person } return { $p.name }\n\n", True),
        ('insert Person { name: "a } b', False),
        ("match { $p: Person /* } ", False),
        ("} broken", False),
        ("} broken;", True),
    ],
)
def test_input_runs_when_it_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_queries_commands_and_settings(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Ada" in run(session, capsys, NAMES)
    assert run(session, capsys, r"\d") == "node Person  2\nedge Knows: Person -> Person  0\n"
    assert "  name: String @key" in run(session, capsys, r"\d Person").splitlines()
    run(session, capsys, r"\set least 30")
    asked = "query q($least: I32) { match { $p: Person  $p.age > $least } return { $p.name as n } }"
    run(session, capsys, r"\format csv")
    assert run(session, capsys, asked) == "n\nAda\n"
    run(session, capsys, r"\x")
    assert "n: Ada" in run(session, capsys, asked)
    run(session, capsys, r"\explain")
    assert "scan" in run(session, capsys, asked).lower()
    assert "$least = 30" in run(session, capsys, r"\set")
    run(session, capsys, r"\set least")
    with pytest.raises(BadRequest, match="least"):
        run_input(session, asked)
    assert "node Person" in run(session, capsys, r"\schema")
    assert run_input(session, r"\q") is False


def test_branches_history_and_the_past(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    run(session, capsys, r"\b draft")
    assert session.prompt == "draft> "
    assert "1 node, no edges affected; commit " in run(session, capsys, 'insert Person { name: "Eve" };')
    assert run(session, capsys, r"\diff") == "insert Person Eve\n"
    assert "* draft" in run(session, capsys, r"\b")
    newest = run(session, capsys, r"\log").splitlines()
    assert newest[0].endswith("  me")
    commit = newest[1].split()[0]
    run(session, capsys, rf"\at {commit}")
    assert session.prompt == f"{commit}> "
    assert "Eve" not in run(session, capsys, NAMES)
    with pytest.raises(BadRequest, match="the past cannot be changed"):
        run_input(session, 'insert Person { name: "Fay" };')
    with pytest.raises(CommitNotFound):
        run_input(session, r"\at 01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert session.prompt == f"{commit}> "
    run(session, capsys, r"\at")
    assert "Eve" in run(session, capsys, NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r"\nothing", "there is no command"),
        (r"\d Robot", "there is no type Robot"),
        (r"\d A B", "takes fewer arguments"),
        (r"\format pdf", "there is no format pdf"),
        (r'\d "open', "cannot be read"),
        (r"\i", "no file is named"),
        (r"\b nowhere", "branch 'nowhere' not found"),
        ("match { $p: Persn } return { $p };", "Persn"),
    ],
)
def test_mistakes_are_typed_errors(session: Session, text: str, message: str) -> None:
    with pytest.raises(OmnigraphError, match=message):
        run_input(session, text)


def test_script_stops_at_the_first_failure(session: Session, tmp_path: Path) -> None:
    (tmp_path / "more.gq").write_text("query n() { match { $p: Person } return { count($p) as total } }")
    wrong = "match {\n$x: Nope }\nreturn { $x };"
    statements = f"\\timing\n\\format csv\n{NAMES}\n\\i {tmp_path / 'more.gq'}\n{wrong}\n{NAMES}"
    script = tmp_path / "script"
    script.write_text(statements)
    with script.open("rb") as given:
        done = python_process.run(
            "-m", "omnigraph", "shell", session.uri, stdin=given.fileno(), stdout=-1, stderr=-1
        )
    assert done.returncode == 1
    assert done.stdout == "p.name\nAda\nBob\ntotal\n2\n"
    assert "Nope" in done.stderr


def complete(session: Session, text: str) -> list[str]:
    found = SchemaCompleter(session).get_completions(Document(text), CompleteEvent())
    return [one.text for one in found]


def test_completion_goes_by_the_schema(session: Session) -> None:
    assert complete(session, "match { $p: Pe") == ["Person"]
    assert complete(session, "match { $p: Person $p.") == ["name", "age"]
    assert "knows" in complete(session, "match { $p: Person $p kn")
    assert complete(session, r"\d Kn") == ["Knows"]
    assert complete(session, r"\b dr") == ["draft"]
    assert "timing" in complete(session, r"\ti")
    assert complete(session, "match { \0") == []


def test_person_at_the_prompt(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text('insert Person {\rname: "Zoe" };\rmatch { $x: Nope } return { $x };\r\\q\r')
        talk(session)
    shown = capsys.readouterr()
    assert "1 node, no edges affected" in shown.out
    assert "error[T1]" in shown.err
    assert "Zoe" in run(session, capsys, NAMES)
    kept = tmp_path / "home" / "shell_history"
    assert '+name: "Zoe" };' in kept.read_text()
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("\x1b[A\r")
        assert make_prompt(session, kept).prompt() == r"\q"


def test_long_results_go_through_the_pager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\ncat > "{tmp_path}/paged"\n')
    pager.chmod(0o755)
    monkeypatch.setenv("PAGER", str(pager))
    show("short")
    assert capsys.readouterr().out == "short\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    show("line\n" * 500)
    assert (tmp_path / "paged").read_text() == "line\n" * 500
