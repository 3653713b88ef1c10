"""A graph for commands to work on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph import graph
from omnigraph.cli.main import main
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location

SCHEMA = "node Person { handle: String @key  age: I32? }\nedge Knows: Person -> Person\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the config file of the operator is looked for; there is none at first."""
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("OMNIGRAPH_PROFILE", raising=False)
    return tmp_path / "home"


@pytest.fixture
def configure(home: Path) -> Callable[[str], None]:
    """Writes the config file."""

    def write(text: str) -> None:
        home.mkdir(exist_ok=True)
        (home / "config.yaml").write_text(text, encoding="utf-8")

    return write


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new, unused graph; copying it takes a fraction of the time of creating one."""
    at = tmp_path_factory.mktemp("template") / "g.omni"
    graph.init(at, schema=SCHEMA).close()
    return at


@pytest.fixture
def uri(tmp_path: Path, template: Path) -> str:
    """Where a new graph is."""
    shutil.copytree(template, tmp_path / "g.omni")
    with graph.open(tmp_path / "g.omni") as opened:
        return opened.uri


@pytest.fixture
def commit(uri: str) -> Callable[..., str]:
    """Publishes a commit as some other writer would; gives its id."""

    def publish_one(branch: str = "main", actor: str | None = None) -> str:
        root = Root.at(Location.parse(uri))
        with root.locks.hold([branch]):
            coordinator = OpenGraph.open(root).coordinator(branch)
            return publish(coordinator, ManifestChanges(), NewCommit(root.new_id(), actor)).commit.id

    return publish_one


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must succeed; gives what it printed."""

    def printed(*arguments: str) -> str:
        capsys.readouterr()
        status = main(list(arguments))
        shown = capsys.readouterr()
        assert status == 0, shown.err
        return shown.out

    return printed


@pytest.fixture
def run_json(run: Callable[..., str]) -> Callable[..., Any]:
    """Runs a command with `--json`; gives the value it printed."""

    def value(*arguments: str) -> Any:
        text = run(*arguments, "--json")
        found = json.loads(text)
        assert text == json.dumps(found, indent=2, ensure_ascii=False) + "\n"
        return found

    return value


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Runs a command that must fail; gives code and message of its error."""

    def error(*arguments: str) -> tuple[str, str]:
        capsys.readouterr()
        assert main([*arguments, "--json"]) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        # Before it there may be lines that tell how far the command came.
        found = json.loads(shown.err.splitlines()[-1])
        return found["code"], found["error"]

    return error
