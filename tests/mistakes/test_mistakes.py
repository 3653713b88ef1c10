"""Mistakes that newcomers make, each with the exact answer: what is wrong, where, and what to do instead.

A case is a text file in `cases/AREA/`: who errs and why, files beside the graph `team.omni` (that of
`demo/team`), what is typed, and the answer. `OMNIGRAPH_UPDATE_GOLDEN=1` writes the answers of this run; read
them as a newcomer would.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from tests.server.running import RunningServer, start_server

CASES = Path(__file__).parent / "cases"
TEAM = Path(__file__).parents[2] / "demo" / "team"
UPDATE = bool(os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"))
AREAS = ("branches", "buckets", "commands", "data", "python", "queries", "schemas", "servers")
PARTS = re.compile(r"^--- (file .+|command|python|answer)\n", flags=re.MULTILINE)


@dataclass(frozen=True)
class Mistake:
    """One case: the files that it needs, what is typed, and the answer."""

    story: str
    files: tuple[tuple[str, str], ...]
    kind: str
    typed: str
    answer: str


def parse_case(text: str) -> Mistake:
    story, *rest = PARTS.split(text)
    parts = list(zip(rest[::2], rest[1::2], strict=True))
    files = tuple((kind.removeprefix("file "), body) for kind, body in parts if kind.startswith("file "))
    (typed,) = [(kind, body) for kind, body in parts if kind in ("command", "python")]
    (answer,) = [body for kind, body in parts if kind == "answer"]
    return Mistake(story, files, typed[0], typed[1], answer)


@pytest.fixture(scope="session")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph of the demo, with a branch; copy it before writing to it."""
    place = tmp_path_factory.mktemp("mistakes") / "team.omni"
    with og.init(place, schema=TEAM / "schema.pg") as graph:
        graph.load(TEAM / "people.jsonl", mode="append")
        graph.branches.create("draft")
    return place


@pytest.fixture(scope="session")
def served(team: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of the graph that asks for the token `ann-token`."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(team, folder / "team.omni")
    env = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps({"ann": "ann-token"})}
    with start_server(folder / "team.omni", folder / "log", env=env) as found:
        yield found


@pytest.mark.parametrize(
    "path", sorted(CASES.rglob("*.txt")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_a_mistake_is_answered_with_what_to_do(
    path: Path, team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    text = path.read_text(encoding="utf-8")
    case = parse_case(text)
    names = {str(tmp_path): "/data"}
    typed = case.typed
    if "SERVER" in typed:
        url = request.getfixturevalue("served").url
        names[url], typed = "SERVER", typed.replace("SERVER", url)
    for name, body in case.files:
        (tmp_path / name).write_text(body, encoding="utf-8")
    shutil.copytree(team, tmp_path / "team.omni")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    for setting in ("OMNIGRAPH_PROFILE", "OMNIGRAPH_TOKEN", "OMNIGRAPH_BEARER_TOKEN"):
        monkeypatch.delenv(setting, raising=False)
    found = _make_comparable(_run_commands(typed) if case.kind == "command" else _run_python(typed), names)
    if UPDATE:
        typed_part = text.partition("--- answer\n")[0]
        path.write_text(f"{typed_part}--- answer\n{found}", encoding="utf-8")
        return
    assert found == case.answer


def _run_commands(typed: str) -> str:
    """What commands print, and how the last one ends."""
    printed, status = io.StringIO(), 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        for line in typed.splitlines():
            printed.seek(0)
            printed.truncate()
            program, *arguments = shlex.split(line)
            assert program == "omnigraph"
            status = main(arguments)
    return f"{printed.getvalue()}exit {status}\n"


def _run_python(typed: str) -> str:
    """What a program prints, and the last lines of its traceback; `graph` is the graph."""
    printed = io.StringIO()
    with og.open("team.omni") as graph, contextlib.redirect_stdout(printed):
        names: dict[str, Any] = {"og": og, "graph": graph}
        try:
            exec(typed, names)  # noqa: S102 - the programs are files beside this one
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is the answer
            printed.write("".join(traceback.format_exception_only(failure)))
    return printed.getvalue()


def _make_comparable(text: str, names: dict[str, str]) -> str:
    for found, shown in names.items():
        text = text.replace(found, shown)
    return re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "<id>", text)


def test_there_are_cases_of_every_area() -> None:
    cases = sorted(CASES.rglob("*.txt"))
    assert len(cases) >= 60
    assert {path.parent.name for path in cases} == set(AREAS)


@pytest.mark.parametrize("path", sorted(CASES.rglob("*.txt")), ids=lambda path: path.stem)
def test_no_answer_is_a_traceback_or_leaves_the_reader_alone(path: Path) -> None:
    answer = parse_case(path.read_text(encoding="utf-8")).answer
    assert "Traceback" not in answer
    assert "internal" not in answer
    assert re.search(
        r"help: |Did you mean|required .*argument|unexpected .*argument|Choose from",
        answer,
        flags=re.MULTILINE,
    ), answer
