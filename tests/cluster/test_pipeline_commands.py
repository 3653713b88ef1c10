"""`omnigraph pipeline` on a cluster: addressed by name, from a directory, a URI or the config file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import pytest

from omnigraph.cli.main import main
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.lease import hold_lease
from omnigraph.pipeline.declared.run import run
from tests.cluster.deployment import Deployment
from tests.cluster.pipelines import HEAD, applied_pipeline, new_deployment, pipeline_text
from tests.pipeline.declared.world import Given


class Shell(Protocol):
    def __call__(self, *arguments: str) -> tuple[int, str, str]: ...


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))

    def command(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["pipeline", *arguments])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return command


@pytest.fixture
def ran(tmp_path: Path) -> Deployment:
    """A deployment whose pipeline ran once."""
    made = new_deployment(tmp_path / "brain", pipeline_text(more={"checkpoint": "watermark"}))
    assert made.import_()["ok"]
    assert made.apply("ann")["converged"]
    done = run(applied_pipeline(made), Given(made.folder, {"node:Person": {"email": ["a@x"]}}, "2024-01-01"))
    assert done.status == "succeeded"
    return made


def test_the_applied_pipelines_of_a_cluster_and_their_runs(ran: Deployment, shell: Shell) -> None:
    at = ("--config", str(ran.folder))
    [record] = open_ledger(applied_pipeline(ran)).list_runs()

    def read(*arguments: str) -> Any:
        status, out, err = shell(*arguments, *at, "--json")
        assert status == 0, err
        return json.loads(out)

    [listed] = read("list")["pipelines"]
    assert (listed["name"], listed["last_run"]["run_id"]) == ("crm", record.run_id)
    assert shell("list", *at)[1].startswith(f"crm: {record.run_id}  ")
    shown = read("show", "crm")
    assert shown["checkpoints"] == {"graph.team": {"people": "2024-01-01"}}
    assert shown["definition_digest"] == record.definition_digest
    assert [one["run_id"] for one in read("runs", "crm")["runs"]] == [record.run_id]
    assert read("status", "crm", record.run_id) == json.loads(json.dumps(record.to_json()))
    assert read("validate", "crm")["pipelines"][0]["name"] == "crm"
    with hold_lease(open_ledger(applied_pipeline(ran)), record.run_id) as held:
        status, _, err = shell("reset-checkpoint", "crm", *at)
        assert status == 1
        assert f"force-unlock FILE|NAME {held.lease_id}" in err
        assert read("force-unlock", "crm", held.lease_id)["run_id"] == record.run_id
    assert shell("reset-checkpoint", "crm", *at)[1] == "graph.team\n"
    assert shell("reset-checkpoint", "crm", *at)[1] == "nothing to forget\n"


def test_a_cluster_is_a_directory_a_uri_or_a_name(
    ran: Deployment, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(f"clusters: {{brain: {{root: {ran.folder}}}}}\n")
    for cluster in (str(ran.folder), "brain"):
        assert shell("runs", "crm", "--cluster", cluster)[0] == 0
    ran.configure(HEAD.replace("root: data/", "root: /data") + pipeline_text())
    assert ran.apply("ann")["converged"]
    assert shell("runs", "crm", "--cluster", f"file://{ran.folder}")[0] == 0
    monkeypatch.chdir(ran.folder)
    assert shell("runs", "crm", "--config", ".")[0] == 0


REFUSED = {
    "an unknown pipeline": (("show", "other"), "has no applied pipeline 'other'"),
    "two clusters": (("show", "crm", "--cluster", "x"), "--cluster and --config are mutually exclusive"),
    "a pipeline of a file": (("show", "crm", "--pipeline", "crm"), "--pipeline chooses a pipeline of a file"),
    "a run of the files": (("run", "crm", "--desired"), "--desired needs --dry-run"),
    "a file as well": (("list", "crm.yaml"), "no pipelines addressed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_a_pipeline_of_the_cluster_is_refused(ran: Deployment, shell: Shell, name: str) -> None:
    arguments, message = REFUSED[name]
    status, _, err = shell(*arguments, "--config", str(ran.folder))
    assert (status, message in err) == (1, True), err


def test_the_files_of_a_cluster_are_no_pipeline_of_a_file(shell: Shell, tmp_path: Path) -> None:
    assert shell("run", str(tmp_path / "crm.yaml"), "--dry-run", "--desired")[0] == 1
    status, _, err = shell("list")
    assert (status, "no pipelines addressed" in err) == (1, True)


def test_a_policy_asks_for_an_actor_before_spark_starts(ran: Deployment, shell: Shell) -> None:
    rules = "rules: [{id: a, allow: {actors: {group: ops}, actions: [read]}}]\n"
    ran.write("team.yaml", f"version: 1\nkind: graph\ngroups: {{ops: [ann]}}\n{rules}")
    policy = "policies:\n  team: {file: team.yaml, applies_to: [team]}\n"
    ran.configure(HEAD + pipeline_text() + policy)
    assert ran.apply("ann")["converged"]
    at = ("--config", str(ran.folder))
    status, _, err = shell("run", "crm", *at)
    assert (status, "the policy of 'graph.team' needs an actor" in err) == (1, True), err
    status, _, err = shell("run", "crm", *at, "--as", "ann")
    assert (status, "branch_create" in err) == (1, True), err
