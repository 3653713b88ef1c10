"""`omnigraph pipeline`: what it prints, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from omnigraph.cli.main import main
from omnigraph.errors import MissingExtra
from omnigraph.pipeline import session
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.run import RunOptions, run
from tests.pipeline.declared.world import Given, declare_pipeline, graph_at, into, people

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    graph_at(tmp_path / "team")
    return tmp_path


class Shell:
    """Runs commands."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        status = main(["pipeline", *arguments])
        shown = self._capsys.readouterr()
        return status, shown.out, shown.err

    def json(self, *arguments: str) -> Any:
        status, out, err = self(*arguments, "--json")
        assert status == 0, err
        return json.loads(out)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_a_pipeline_from_the_command_line(spark: SparkSession, folder: Path, shell: Shell) -> None:
    declare_pipeline(folder, into(mode="merge"), "checkpoint: watermark\nparams: {least: 1}")
    assert shell("validate", "crm.yaml")[:2] == (0, "crm: valid\n")
    planned = shell("plan", "crm.yaml")
    assert planned[:2] == (0, "graph.team: merge on branch main\n  node:Person: email string, age int\n")
    counted = shell.json("run", "crm.yaml", "--dry-run")
    assert counted["targets"]["graph.team"]["types"]["node:Person"]["rows"] == 1
    assert people(folder / "team") == []
    status, out, err = shell("run", "crm.yaml", "--as", "ann", "--param", "least=2")
    assert (status, people(folder / "team")) == (0, ["a@x"])
    assert "graph.team: succeeded, 1 row, commit " in out
    assert "omnigraph pipeline run → " in err
    again = shell.json("run", "crm.yaml", "--target", "team")
    assert again["targets"]["graph.team"]["status"] == "skipped"
    found = shell.json("runs", "crm.yaml")["runs"]
    assert [(one["status"], one["params"], one.get("actor")) for one in found] == [
        ("succeeded", {"least": 1}, None),
        ("succeeded", {"least": 2}, "ann"),
    ]
    assert shell.json("status", "crm.yaml", again["run_id"]) == again
    assert shell.json("show", "crm.yaml")["checkpoints"] == {"graph.team": {"people": "2024-01-01"}}
    assert "people up to 2024-01-01" in shell("show", "crm.yaml")[1]
    assert shell("reset-checkpoint", "crm.yaml")[1] == "graph.team\n"
    assert shell("reset-checkpoint", "crm.yaml")[1] == "nothing to forget\n"


def test_what_failed_is_shown_and_exits_with_1(folder: Path, shell: Shell) -> None:
    pipeline = declare_pipeline(folder, into())
    run(pipeline, Given(folder, {"node:Person": {"email": ["a@x"]}}))
    failed = run(pipeline, Given(folder, {"node:Person": {"email": ["a@x"]}}), RunOptions(full_refresh=True))
    assert "error[key_conflict]" in shell("status", "crm.yaml", failed.run_id)[1]
    assert [line.split()[2] for line in shell("runs", "crm.yaml")[1].splitlines()] == ["failed", "succeeded"]
    wrong = [
        ("status", "crm.yaml", "nothing"),
        ("retry", "crm.yaml", "nothing"),
        ("force-unlock", "crm.yaml", "nothing"),
        ("run", "crm.yaml", "--param", "least"),
        ("run", "crm.yaml", "--target", "missing"),
        ("validate", "nowhere.yaml"),
    ]
    assert [shell(*arguments)[0] for arguments in wrong] == [1] * len(wrong)
    assert open_ledger(pipeline).list_runs(1)[0].run_id == failed.run_id


def test_several_mistakes_are_reported_line_by_line(folder: Path, shell: Shell) -> None:
    Path("crm.yaml").write_text("pipelines:\n  a: {trigger: x, into: []}\n  b: {into: []}\n")
    status, _, err = shell("validate", "crm.yaml")
    assert status == 1
    assert err.splitlines()[:3] == [
        "error[pipeline_invalid]: 2 violations",
        "  crm.yaml:2: `pipelines.a.trigger` is kept for later",
        "  crm.yaml:3: `pipelines.b` needs either `source` or `sources`",
    ]
    status, _, err = shell("validate", "crm.yaml", "--json")
    assert [one["code"] for one in json.loads(err)["data"]["violations"]] == [
        "future_phase_field",
        "pipeline_invalid",
    ]


def test_without_spark_a_plan_says_what_was_not_looked_at(
    folder: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent() -> None:
        raise MissingExtra("the data pipeline", package="pyspark", extra="spark")

    monkeypatch.setattr(session, "require_spark", absent)
    declare_pipeline(folder, into())
    status, out, err = shell("plan", "crm.yaml")
    assert (status, "columns not checked" in out) == (0, True)
    assert err.startswith("warning[pipeline_sql_check_skipped]: ")
    assert shell("run", "crm.yaml")[0] == 1
