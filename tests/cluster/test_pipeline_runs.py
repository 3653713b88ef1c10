"""Runs of applied pipelines: recorded below the root of the cluster, one at a time, each row once."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.cluster.applied_pipelines import AppliedPipelines
from omnigraph.errors import (
    InternalError,
    PipelineDefinitionMoved,
    PipelineMovedToCluster,
    PipelineRecordInvalid,
    PipelineRecordsMissing,
    PipelineRunInProgress,
    PipelineSchemaDrift,
    PipelineTargetReplaced,
    PolicyDenied,
    Unauthorized,
)
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.check import check
from omnigraph.pipeline.declared.declaration import Pipeline
from omnigraph.pipeline.declared.lease import Lease, force_unlock, hold_lease, read_lease
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.declared.run import RunOptions, retry, run
from omnigraph.storage.location import Location
from tests.cluster.deployment import Deployment, statuses
from tests.cluster.pipelines import HEAD, applied_pipeline, new_deployment, pipeline_text
from tests.pipeline.declared.world import PEOPLE_MAP, SCHEMA, Given, people

ONE = {"node:Person": {"email": ["a@x"]}}
OTHER = {"node:Person": {"email": ["b@x"]}}
BOTH = ("team", "other")
WATERMARK = {"checkpoint": "watermark"}


@pytest.fixture(scope="session")
def run_template(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """An applied deployment that no test changes."""
    made = new_deployment(tmp_path_factory.mktemp("cluster") / "template")
    assert made.import_()["ok"]
    assert made.apply("ann")["converged"]
    return made


@pytest.fixture
def deployment(run_template: Deployment, tmp_path: Path) -> Deployment:
    """A deployment whose pipeline was applied and never ran."""
    return run_template.copy_to(tmp_path / "deployment")


def apply_pipeline(deployment: Deployment, text: str) -> Pipeline:
    """Apply another definition of the pipeline."""
    deployment.configure(HEAD + text)
    assert deployment.apply("ann")["converged"]
    return applied_pipeline(deployment)


def file_pipeline(deployment: Deployment, more: str = "") -> Pipeline:
    """The same pipeline in a file, as it was before the cluster had it."""
    (deployment.folder / "crm.yaml").write_text(
        "pipelines:\n  crm:\n    sources:\n      people: {format: csv, path: data/people.csv,"
        " options: {header: 'true'}, watermark: {column: updated, type: date}}\n"
        f"    into: [{{graph: graphs/team.omni, mode: append, map: {PEOPLE_MAP}}}]\n{more}"
    )
    return read_pipeline(deployment.folder / "crm.yaml")


def team(deployment: Deployment) -> list[str]:
    return people(deployment.graph("team"))


def branches(deployment: Deployment) -> list[str]:
    with og.open(deployment.graph("team"), read_only=True) as graph:
        return graph.branches.list()


def records(deployment: Deployment) -> Path:
    return deployment.control / "pipelines" / "crm"


def test_a_run_is_on_record_below_the_root_of_the_cluster(deployment: Deployment) -> None:
    pipeline, given = applied_pipeline(deployment), Given(deployment.folder, ONE)
    before = deployment.state()
    first = run(pipeline, given, RunOptions(actor="ann"))
    assert (first.status, team(deployment), branches(deployment)) == ("succeeded", ["a@x"], ["main"])
    stored = json.loads((records(deployment) / "runs" / f"{first.run_id}.json").read_text())
    assert stored["definition_digest"] == before["applied_revision"]["resources"]["pipeline.crm"]["digest"]
    assert (stored["actor"], stored["pipeline"], stored["schema_version"]) == ("ann", "crm", 1)
    target = stored["targets"]["graph.team"]
    assert (target["status"], target["nodes"], target["mode"]) == ("succeeded", {"Person": 1}, "append")
    assert set(target) >= {"idempotency_key", "commit_ids", "merged_commit_id", "retryable", "base_head"}
    assert not (records(deployment) / "lease.json").exists()
    assert deployment.state() == before, "rows and runs never enter the ledger"
    assert run(pipeline, given).targets["graph.team"].status == "skipped"


def test_a_watermark_bounds_the_next_run_of_each_target(deployment: Deployment) -> None:
    pipeline = apply_pipeline(deployment, pipeline_text(BOTH, more=WATERMARK))
    run(pipeline, Given(deployment.folder, ONE, "2024-01-01"), RunOptions(("team",)))
    given = Given(deployment.folder, OTHER, "2024-01-02")
    assert run(pipeline, given).status == "succeeded"
    assert [one["people"].lower for one in given.asked] == ["2024-01-01", None]
    third = run(pipeline, Given(deployment.folder, {"node:Person": {"email": []}}, "2024-01-02"))
    assert {one.status for one in third.targets.values()} == {"skipped"}
    stored = json.loads((records(deployment) / "checkpoint.json").read_text())
    assert {name: one["people"]["upper"] for name, one in stored["targets"].items()} == {
        "graph.team": "2024-01-02",
        "graph.other": "2024-01-02",
    }


def test_a_target_that_fails_makes_the_run_partial_and_a_retry_completes_it(deployment: Deployment) -> None:
    pipeline = apply_pipeline(deployment, pipeline_text(BOTH))
    with og.open(deployment.graph("team")) as graph, graph.write() as tx:
        tx.insert("Person", email="a@x")
    first = run(pipeline, Given(deployment.folder, ONE))
    assert (first.status, first.targets["graph.other"].status) == ("partial", "succeeded")
    seen = deployment.refresh()
    assert statuses(seen)["pipeline.crm"] == "applied PartialPipelineRun"
    assert seen["observations"]["pipeline.crm"] == {
        "kind": "pipeline",
        "last_run_id": first.run_id,
        "last_status": "partial",
        "finished_at": first.finished_at,
        "checkpoints": {},
    }
    with og.open(deployment.graph("team")) as graph, graph.write() as tx:
        tx.delete("Person", ("email", "=", "a@x"))
    again = retry(pipeline, Given(deployment.folder, ONE), first.run_id, RunOptions(actor="bob"))
    assert (again.run_id, again.status, again.actor) == (first.run_id, "succeeded", "bob")
    assert team(deployment) == people(deployment.graph("other")) == ["a@x"]
    assert statuses(deployment.refresh())["pipeline.crm"] == "applied"


def test_a_second_run_is_refused_and_a_foreign_lease_removed_by_its_id(deployment: Deployment) -> None:
    pipeline, given = applied_pipeline(deployment), Given(deployment.folder, ONE)
    ledger = open_ledger(pipeline)
    with hold_lease(ledger, "a run"):
        with pytest.raises(PipelineRunInProgress):
            run(pipeline, given)
        # Runs and the ledger of the cluster do not wait for each other.
        deployment.configure(HEAD + pipeline_text(mode="merge"))
        assert deployment.apply("ann")["converged"]
    elsewhere = Lease("theirs", "run", f"not-{socket.gethostname()}", 1, "")
    records(deployment).mkdir(parents=True, exist_ok=True)
    text = json.dumps({name: getattr(elsewhere, name) for name in Lease.__dataclass_fields__})
    (records(deployment) / "lease.json").write_text(text)
    with pytest.raises(PipelineRunInProgress) as refused:
        run(pipeline, given)
    assert (refused.value.lease_id, team(deployment)) == ("theirs", [])
    force_unlock(ledger, "theirs")
    assert run(pipeline, given).status == "succeeded"


DAMAGES = ("{", "[]", '{"targets": 1}')


@pytest.mark.parametrize("name", ["runs/{run}.json", "lease.json"])
def test_a_damaged_record_is_reported_with_its_place(deployment: Deployment, name: str) -> None:
    pipeline, given = applied_pipeline(deployment), Given(deployment.folder, ONE)
    at = records(deployment) / name.format(run=run(pipeline, given).run_id)
    for damage in DAMAGES:
        at.write_text(damage)
        with pytest.raises(PipelineRecordInvalid) as refused:
            run(pipeline, given)
        assert refused.value.uri == str(at)
    assert team(deployment) == ["a@x"]


def test_a_damaged_checkpoint_fails_the_run_and_the_refresh(deployment: Deployment) -> None:
    pipeline = apply_pipeline(deployment, pipeline_text(more=WATERMARK))
    given = Given(deployment.folder, ONE, "2024-01-01")
    run(pipeline, given)
    for damage in DAMAGES:
        (records(deployment) / "checkpoint.json").write_text(damage)
        failed = run(pipeline, given).targets["graph.team"]
        assert (failed.status, failed.error and failed.error["code"]) == ("failed", "pipeline_record_invalid")
    [found] = deployment.refresh()["diagnostics"]
    assert (found["code"], "checkpoint.json' cannot be read" in found["message"]) == ("storage_failure", True)
    assert team(deployment) == ["a@x"]


def test_a_live_schema_that_no_longer_fits_is_drift(deployment: Deployment) -> None:
    pipeline = applied_pipeline(deployment)
    with og.open(deployment.graph("team")) as graph:
        graph.apply_schema(SCHEMA.replace("  age: I32?", ""))
    with pytest.raises(PipelineSchemaDrift) as refused:
        check(pipeline)
    assert [one.code for one in refused.value.violations] == ["pipeline_property_unknown"]
    with pytest.raises(PipelineSchemaDrift):
        run(pipeline, Given(deployment.folder, ONE))
    assert not records(deployment).exists()


def test_the_applied_policy_of_a_target_decides_before_anything_happens(deployment: Deployment) -> None:
    rules = "[{id: all, allow: {actors: {group: ops}, actions: [%s]}}]"
    bundle = "version: 1\nkind: graph\ngroups: {ops: [ann]}\nrules: " + rules
    deployment.write("team.yaml", bundle % "change, branch_create, branch_merge, branch_delete")
    policy = "policies:\n  team: {file: team.yaml, applies_to: [team]}\n"
    deployment.configure(HEAD + pipeline_text() + policy)
    assert deployment.apply("ann")["converged"]
    # What is not applied yet has no effect.
    deployment.write("team.yaml", bundle % "change")
    applied = AppliedPipelines.open(str(deployment.folder))
    pipeline = applied.read("crm")
    policies = applied.policies(pipeline)
    given = Given(deployment.folder, ONE)
    with pytest.raises(PolicyDenied):
        run(pipeline, given, RunOptions(actor="bob", policies=policies))
    with pytest.raises(Unauthorized):
        run(pipeline, given, RunOptions(policies=policies))
    assert not records(deployment).exists()
    assert run(pipeline, given, RunOptions(actor="ann", policies=policies)).status == "succeeded"
    assert deployment.apply("ann")["converged"]
    policies = AppliedPipelines.open(str(deployment.folder)).policies(pipeline)
    with pytest.raises(PolicyDenied, match="branch_create"):
        run(pipeline, given, RunOptions(actor="ann", policies=policies))


def test_a_retry_after_a_change_of_definition_or_schema_is_refused(deployment: Deployment) -> None:
    pipeline = applied_pipeline(deployment)

    with og.open(deployment.graph("team")) as graph, graph.write() as tx:
        tx.insert("Person", email="a@x")
    failed = run(pipeline, Given(deployment.folder, ONE))
    assert (failed.status, failed.targets["graph.team"].retryable) == ("failed", False)
    with og.open(deployment.graph("team")) as graph:
        graph.apply_schema(SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    with pytest.raises(PipelineDefinitionMoved, match="the schema of 'graph"):
        retry(pipeline, Given(deployment.folder, ONE), failed.run_id)
    deployment.write("team.pg", SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    deployment.refresh()
    merging = apply_pipeline(deployment, pipeline_text(mode="merge"))
    with pytest.raises(PipelineDefinitionMoved, match="pipeline 'crm'"):
        retry(merging, Given(deployment.folder, ONE), failed.run_id)
    assert run(merging, Given(deployment.folder, ONE)).status == "succeeded"


# --- adoption of the records of a file ---------------------------------------------------------------


def test_rows_that_a_file_appended_are_not_appended_again_by_the_cluster(deployment: Deployment) -> None:
    file, given = file_pipeline(deployment), Given(deployment.folder, ONE)
    first = run(file, given)
    assert team(deployment) == ["a@x"]
    pipeline = applied_pipeline(deployment)
    second = run(pipeline, given)
    assert (second.targets["graph.team"].status, team(deployment)) == ("skipped", ["a@x"])
    assert [one.run_id for one in open_ledger(pipeline).list_runs()] == [second.run_id, first.run_id]
    adopted = open_ledger(pipeline).read_run(first.run_id).targets["graph.team"]
    assert (adopted.status, adopted.recorded_as) == ("succeeded", "graph.graphs/team.omni")
    with pytest.raises(PipelineMovedToCluster) as refused:
        run(file, Given(deployment.folder, OTHER))
    assert (refused.value.cluster, team(deployment)) == (str(deployment.folder), ["a@x"])
    assert run(pipeline, Given(deployment.folder, OTHER, content="2")).status == "succeeded"
    assert len(open_ledger(pipeline).list_runs()) == 3, "records are taken over once"


def test_a_file_is_refused_also_if_it_never_ran(deployment: Deployment) -> None:
    assert run(applied_pipeline(deployment), Given(deployment.folder, ONE)).status == "succeeded"
    with pytest.raises(PipelineMovedToCluster):
        run(file_pipeline(deployment), Given(deployment.folder, ONE))


def test_the_cluster_goes_on_where_the_file_ended(deployment: Deployment) -> None:
    file = file_pipeline(deployment, "    checkpoint: watermark\n")
    run(file, Given(deployment.folder, ONE, "2024-01-01"))
    pipeline = apply_pipeline(deployment, pipeline_text(more=WATERMARK))
    given = Given(deployment.folder, OTHER, "2024-01-02")
    assert run(pipeline, given).status == "succeeded"
    assert [one["people"].lower for one in given.asked] == ["2024-01-01"]
    assert team(deployment) == ["a@x", "b@x"]


def test_the_records_of_another_graph_with_the_same_name_are_not_those_of_the_cluster(
    deployment: Deployment, tmp_path: Path
) -> None:
    copy = tmp_path / "copy" / "team.omni"
    og.init(copy, schema=SCHEMA).close()
    file_pipeline(deployment, "    checkpoint: watermark\n")
    at = deployment.folder / "crm.yaml"
    rows = f"mode: append, map: {PEOPLE_MAP}}}"
    at.write_text(at.read_text().replace(f"{rows}]", f"{rows}, {{graph: ../copy/team.omni, {rows}]"))
    file = read_pipeline(at)
    run(file, Given(deployment.folder, ONE, "2024-01-01"))
    run(file, Given(deployment.folder, OTHER, "2024-01-02"), RunOptions(("../copy/team.omni",)))
    pipeline = apply_pipeline(deployment, pipeline_text(more=WATERMARK))
    given = Given(deployment.folder, OTHER, "2024-01-02")
    assert run(pipeline, given).status == "succeeded"
    assert [one["people"].lower for one in given.asked] == ["2024-01-01"]
    assert team(deployment) == ["a@x", "b@x"]


@pytest.mark.parametrize("named", ["team.omni", "./team.omni", "{folder}/team.omni", "{link}/team.omni"])
def test_the_records_of_a_file_are_found_however_it_names_the_graph(
    deployment: Deployment, tmp_path: Path, named: str
) -> None:
    folder, link = deployment.folder / "graphs", tmp_path / "link"
    link.symlink_to(folder)
    file_pipeline(deployment)
    text = (deployment.folder / "crm.yaml").read_text()
    text = text.replace("graphs/team.omni", named.format(folder=folder, link=link))
    (folder / "crm.yaml").write_text(text.replace("data/people.csv", "../data/people.csv"))
    given = Given(deployment.folder, ONE)
    assert run(read_pipeline(folder / "crm.yaml"), given).status == "succeeded"
    assert run(applied_pipeline(deployment), given).targets["graph.team"].status == "skipped"
    assert team(deployment) == ["a@x"]


def test_records_are_not_taken_over_from_a_run_that_is_under_way(deployment: Deployment) -> None:
    file, pipeline = file_pipeline(deployment), applied_pipeline(deployment)
    with hold_lease(open_ledger(file), "a run"), pytest.raises(PipelineRunInProgress):
        run(pipeline, Given(deployment.folder, ONE))
    assert run(file, Given(deployment.folder, ONE)).status == "succeeded"
    assert run(pipeline, Given(deployment.folder, ONE)).targets["graph.team"].status == "skipped"


@pytest.mark.parametrize("point", [failpoints.PIPELINE_BEFORE_ADOPTION, failpoints.PIPELINE_AFTER_ADOPTION])
def test_an_interrupted_adoption_is_completed_by_the_next_run(deployment: Deployment, point: str) -> None:
    file, given = file_pipeline(deployment), Given(deployment.folder, ONE)
    run(file, given)
    pipeline = applied_pipeline(deployment)
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(InternalError):
        run(pipeline, given)
    with pytest.raises(PipelineMovedToCluster):
        run(file, Given(deployment.folder, OTHER))
    assert run(pipeline, given).targets["graph.team"].status == "skipped"
    assert (team(deployment), len(open_ledger(pipeline).list_runs())) == (["a@x"], 2)


# --- graphs that are moved, lost or made again ------------------------------------------------------


def test_a_graph_moved_to_another_cluster_is_not_loaded_twice(deployment: Deployment, tmp_path: Path) -> None:
    assert run(applied_pipeline(deployment), Given(deployment.folder, ONE)).status == "succeeded"
    other = deployment.copy_to(tmp_path / "other")
    shutil.rmtree(other.control)
    assert other.import_()["ok"]
    assert other.apply("ann")["converged"]
    pipeline, given = applied_pipeline(other), Given(other.folder, ONE)
    with pytest.raises(PipelineRecordsMissing) as refused:
        run(pipeline, given)
    assert (refused.value.cluster, team(other)) == (str(deployment.folder), ["a@x"])
    assert open_ledger(pipeline).list_runs() == []
    records = "pipelines/crm"
    shutil.copytree(deployment.control / records, other.control / records, dirs_exist_ok=True)
    assert run(pipeline, given).targets["graph.team"].status == "skipped"
    mark = json.loads((other.graph("team") / "__pipelines/crm/moved.json").read_text())
    assert mark["cluster"] == str(other.folder)


def test_a_cluster_that_was_moved_as_a_whole_goes_on(deployment: Deployment, tmp_path: Path) -> None:
    assert run(applied_pipeline(deployment), Given(deployment.folder, ONE)).status == "succeeded"
    moved = Deployment(deployment.folder.rename(tmp_path / "moved"))
    assert moved.refresh()["ok"]
    given = Given(moved.folder, ONE)
    assert run(applied_pipeline(moved), given).targets["graph.team"].status == "skipped"
    assert run(applied_pipeline(moved), Given(moved.folder, OTHER, content="2")).status == "succeeded"
    assert team(moved) == ["a@x", "b@x"]


def test_records_that_are_lost_stop_a_pipeline_until_it_starts_over(deployment: Deployment) -> None:
    pipeline = apply_pipeline(deployment, pipeline_text(mode="merge"))
    given = Given(deployment.folder, ONE)
    assert run(pipeline, given).status == "succeeded"
    shutil.rmtree(deployment.control / "pipelines")
    with pytest.raises(PipelineRecordsMissing, match="which has lost them"):
        run(pipeline, given)
    assert run(pipeline, given, RunOptions(full_refresh=True)).status == "succeeded"
    assert run(pipeline, given).status == "succeeded"


@pytest.mark.parametrize("more", [{}, WATERMARK], ids=["rows", "watermark"])
def test_a_graph_that_was_made_again_gets_all_rows(deployment: Deployment, more: dict[str, str]) -> None:
    """Its first run would be skipped, or read what is new alone, as if the rows were still there."""
    pipeline = apply_pipeline(deployment, pipeline_text(BOTH, more=more))
    given = Given(deployment.folder, ONE, "2024-01-01")
    assert run(pipeline, given).status == "succeeded"
    deployment.configure("version: 1\n")
    for name in BOTH:
        assert deployment.approve(f"graph.{name}")["ok"]
    assert deployment.apply("ann")["converged"]
    pipeline = apply_pipeline(deployment, pipeline_text(BOTH, more=more))
    for target in ("graph.team", "graph.other"):
        with pytest.raises(PipelineTargetReplaced, match=target):
            run(pipeline, given, RunOptions((target,)))
    assert run(pipeline, given, RunOptions(full_refresh=True)).status == "succeeded"
    assert [people(deployment.graph(name)) for name in BOTH] == [["a@x"], ["a@x"]]
    assert run(pipeline, Given(deployment.folder, OTHER, "2024-01-02", "2")).status == "succeeded"


# --- in a bucket -------------------------------------------------------------------------------------


@pytest.mark.s3
def test_lease_records_and_checkpoint_in_a_bucket(tmp_path: Path, s3_root: Location) -> None:
    made = new_deployment(tmp_path / "files")
    made.configure(f"storage: {s3_root.uri}\n{HEAD}{pipeline_text(more=WATERMARK)}")
    assert made.import_()["ok"]
    assert made.apply("ann")["converged"]
    pipeline = applied_pipeline(made)
    ledger = open_ledger(pipeline)
    assert ledger.place.uri == f"{s3_root.uri}/__cluster/pipelines/crm"
    with hold_lease(ledger, "a run") as held:
        with pytest.raises(PipelineRunInProgress):
            run(pipeline, Given(tmp_path, ONE, "2024-01-01"))
        assert read_lease(ledger) == held
    done = run(pipeline, Given(tmp_path, ONE, "2024-01-01"))
    assert (done.status, [one.run_id for one in ledger.list_runs()]) == ("succeeded", [done.run_id])
    assert ledger.read_checkpoint()["graph.team"]["people"].upper == "2024-01-01"
    with og.open(pipeline.into[0].uri, read_only=True) as graph:
        assert graph.snapshot().rows("Person")["email"].to_pylist() == ["a@x"]
