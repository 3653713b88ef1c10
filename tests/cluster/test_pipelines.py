"""Pipelines as resources: checked offline, planned, gated, published, verified; applying runs nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.cluster.applied_pipelines import AppliedPipelines
from omnigraph.errors import ClusterUnreadable, PipelineInvalid, PipelineNotApplied
from omnigraph.pipeline.declared.declaration import GraphSource, LoadMode
from tests.cluster.deployment import Deployment, Json, codes, outcomes, statuses
from tests.cluster.pipelines import HEAD, MAP, applied_pipeline, new_deployment, pipeline_text
from tests.pipeline.declared.world import SCHEMA

CASES = Path(__file__).with_name("pipeline_mistakes.txt").read_text(encoding="utf-8")
MISTAKES = {
    name: (text, expected.strip())
    for block in CASES.split("\n== ")[1:]
    for name, _, rest in [block.partition("\n")]
    for text, _, expected in [rest.partition("-> ")]
}


@pytest.fixture(scope="session")
def pipeline_template(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """An applied deployment that no test changes."""
    made = new_deployment(tmp_path_factory.mktemp("cluster") / "template")
    assert made.import_()["ok"]
    assert made.apply("ann")["converged"]
    return made


@pytest.fixture
def declared(pipeline_template: Deployment, tmp_path: Path) -> Deployment:
    """A deployment whose pipeline was applied and never ran."""
    return pipeline_template.copy_to(tmp_path / "declared")


def payload(deployment: Deployment) -> Path:
    """The published copy of the pipeline."""
    digest = deployment.state()["applied_revision"]["resources"]["pipeline.crm"]["digest"]
    return deployment.control / "resources" / "pipeline" / "crm" / f"{digest}.pipeline.yaml"


def findings(result: Json) -> list[str]:
    return [
        f"{one['code']} {one['line']}:{one['column']}"
        for one in result["diagnostics"]
        if one["severity"] == "error"
    ]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_pipeline_is_reported_at_its_place(tmp_path: Path, name: str) -> None:
    text, expected = MISTAKES[name]
    made = new_deployment(tmp_path, text)
    result = made.validate()
    assert (result["ok"], findings(result)) == (False, [expected])
    [found] = [one for one in result["diagnostics"] if one["severity"] == "error"]
    assert (found["path"], found["file"]) == ("pipelines.crm", "cluster.yaml")
    assert "hunter2" not in json.dumps(result)


def test_a_map_file_is_checked_where_it_is_written(tmp_path: Path) -> None:
    made = new_deployment(tmp_path)
    made.write("people.map.yaml", MAP.replace("email: email", "mail: email"))
    found = made.validate()["diagnostics"]
    assert [(one["code"], one["file"], one["line"]) for one in found if one["severity"] == "error"] == [
        ("pipeline_property_unknown", "people.map.yaml", 1),
        ("pipeline_key_unmapped", "people.map.yaml", 1),
    ]


def test_a_provider_with_a_mistake_is_reported(tmp_path: Path) -> None:
    made = new_deployment(tmp_path)
    made.configure(HEAD.replace("kind: files", "kind: ftp"))
    assert findings(made.validate()) == ["pipeline_source_kind_unsupported 4:18"]


def test_a_secret_that_is_not_set_is_a_warning_and_appears_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = '{kind: jdbc, url: "jdbc:x", table: t, user: "${CRM_USER}", password: "${CRM_PASSWORD}"}'
    made = new_deployment(tmp_path, pipeline_text().replace("people: {", f"people: {source}\n      more: {{"))
    monkeypatch.setenv("CRM_USER", "somebody")
    monkeypatch.delenv("CRM_PASSWORD", raising=False)
    result = made.validate()
    assert [one["message"] for one in result["diagnostics"] if one["code"] == "source_secret_missing"] == [
        "'CRM_PASSWORD' is not set here; a run needs it in its environment"
    ]
    assert result["ok"]
    made.import_()
    assert made.apply("ann")["converged"]
    assert "somebody" not in payload(made).read_text() + json.dumps(made.state())
    assert "${CRM_PASSWORD}" in payload(made).read_text()


def test_the_resource_its_digest_and_what_it_needs(declared: Deployment) -> None:
    found = declared.validate()
    resources = {one["address"]: one for one in found["resources"]}
    assert [resources[one]["kind"] for one in ("pipeline.crm", "provider.source.lake")] == [
        "pipeline",
        "source_provider",
    ]
    needed = [one["to"] for one in found["dependencies"] if one["from"] == "pipeline.crm"]
    assert needed == ["graph.team", "provider.source.lake", "schema.team"]
    entries = declared.state()["applied_revision"]["resources"]
    assert entries["pipeline.crm"] == {
        "digest": resources["pipeline.crm"]["digest"],
        "targets": ["graph.team"],
    }
    assert entries["provider.source.lake"]["source_profile"] == {"kind": "files", "root": "data/"}
    # What the file looks like does not count, what it says does.
    text = (
        pipeline_text().replace("mode: append", "mode:  'append'").replace("graph: team", "graph: graph.team")
    )
    declared.configure(f"# a remark\n{HEAD}{text}")
    assert "pipeline.crm" not in outcomes(declared.plan())
    declared.write("people.map.yaml", MAP.replace("email: email", "email: lower(email)"))
    planned = declared.plan()
    assert outcomes(planned)["pipeline.crm"] == "update applied"
    assert codes(planned) == ["pipeline_sql_check_skipped"]
    [skipped] = planned["diagnostics"]
    assert "omnigraph pipeline plan crm --desired --config" in skipped["message"]


def test_create_update_and_delete_change_the_definition_alone(declared: Deployment) -> None:
    assert applied_pipeline(declared).into[0].mode is LoadMode.APPEND
    declared.configure(HEAD + pipeline_text(("team", "other"), "merge", {"params": "{least: 1}"}))
    assert outcomes(declared.apply("ann"))["pipeline.crm"] == "update applied"
    applied = applied_pipeline(declared)
    assert [(one.name, one.mode.value) for one in applied.into] == [
        ("graph.team", "merge"),
        ("graph.other", "merge"),
    ]
    assert applied.params == (("least", 1),)
    assert not (declared.control / "pipelines").exists(), "applying runs nothing"
    copy = payload(declared)
    declared.configure(HEAD)
    result = declared.apply("ann")
    assert (result["converged"], outcomes(result)["pipeline.crm"]) == (True, "delete applied")
    assert copy.exists()
    with pytest.raises(PipelineNotApplied, match="has no applied pipeline 'crm'"):
        applied_pipeline(declared)


def test_a_run_uses_what_was_applied_and_not_the_working_tree(declared: Deployment) -> None:
    declared.configure(HEAD + pipeline_text(mode="merge"))
    declared.write("people.map.yaml", "broken: [")
    assert applied_pipeline(declared).into[0].mode is LoadMode.APPEND
    declared.write("people.map.yaml", MAP)
    applied = AppliedPipelines.open(str(declared.folder))
    assert applied.read_desired("crm").into[0].mode is LoadMode.MERGE
    assert applied.read("crm").digest == applied.state.resources["pipeline.crm"].digest


def test_overwriting_needs_an_approval_of_exactly_this_definition(declared: Deployment) -> None:
    declared.configure(HEAD + pipeline_text(mode="overwrite"))
    planned = declared.plan()
    assert planned["approvals_required"] == [
        {"resource": "pipeline.crm", "reason": "pipeline overwrites its target", "satisfied": False}
    ]
    blocked = declared.apply("ann")
    assert outcomes(blocked)["pipeline.crm"] == "update blocked approval_required"
    assert statuses(blocked)["pipeline.crm"] == "blocked approval_required"
    assert applied_pipeline(declared).into[0].mode is LoadMode.APPEND
    assert declared.approve("pipeline.crm")["ok"]
    declared.write("people.map.yaml", MAP.replace("email: email", "email: lower(email)"))
    stale = declared.apply("ann")
    assert "approval_stale" in codes(stale)
    assert outcomes(stale)["pipeline.crm"] == "update blocked approval_required"
    approved = declared.approve("pipeline.crm")
    done = declared.apply("ann")
    assert (done["converged"], outcomes(done)["pipeline.crm"]) == (True, "update applied")
    assert approved["approval_id"] in declared.state()["approval_records"]
    used = {one["approval_id"]: one["consumed_at"] for one in declared.approvals()}
    assert used[approved["approval_id"]] is not None
    assert applied_pipeline(declared).into[0].mode is LoadMode.OVERWRITE
    declared.configure(HEAD)
    assert outcomes(declared.apply("ann"))["pipeline.crm"] == "delete applied"
    assert codes(declared.approve("pipeline.crm"), "error") == ["approval_not_required"]


def test_a_schema_change_names_the_pipelines_that_it_affects(declared: Deployment) -> None:
    declared.write("team.pg", SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    radius = {one["resource"]: one["affected"] for one in declared.plan()["blast_radius"]}
    assert "pipeline.crm" in radius["schema.team"]
    declared.write("team.pg", SCHEMA.replace("  age: I32?", ""))
    assert findings(declared.plan()) == ["pipeline_property_unknown 1:9"]


def test_a_pipeline_waits_for_a_graph_that_failed(tmp_path: Path) -> None:
    made = new_deployment(tmp_path)
    made.import_()
    blocker = made.graph("team")
    blocker.mkdir(parents=True)
    (blocker / "file").write_text("in the way")
    result = made.apply("ann")
    assert "graph_create_failed" in codes(result)
    assert outcomes(result)["pipeline.crm"] == "create blocked dependency_not_applied"


def test_a_pipeline_waits_for_the_recovery_of_its_graph(declared: Deployment) -> None:
    declared.write("team.pg", SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    point = failpoints.CLUSTER_APPLY_BEFORE_SCHEMA_APPLY
    with failpoints.arm(point, failpoints.error(point)):
        declared.apply("ann")
    [sidecar] = declared.sidecars()
    with og.open(declared.graph(sidecar["graph_id"])) as graph:
        graph.apply_schema(SCHEMA.replace("age: I32?", "age: I32?  town: String?"))
    declared.configure(HEAD + pipeline_text((sidecar["graph_id"],), "merge"))
    result = declared.apply("ann")
    assert "cluster_recovery_pending" in codes(result)
    assert outcomes(result)["pipeline.crm"] == "update blocked cluster_recovery_pending"


def test_a_published_copy_that_was_changed_is_found_and_published_again(declared: Deployment) -> None:
    at = payload(declared)
    before = at.read_text()
    at.write_text(before.replace("append", "merge"))
    assert codes(declared.status()) == ["catalog_payload_mismatch"]
    with pytest.raises(ClusterUnreadable, match="catalog_payload_mismatch"):
        applied_pipeline(declared)
    refreshed = declared.refresh()
    assert statuses(refreshed)["pipeline.crm"] == "drifted payload_mismatch"
    assert outcomes(declared.apply("ann"))["pipeline.crm"] == "create applied"
    assert at.read_text() == before
    at.unlink()
    assert codes(declared.status()) == ["catalog_payload_missing"]


def test_a_map_that_changes_during_the_command_ends_it(declared: Deployment) -> None:
    declared.configure(HEAD + pipeline_text(mode="merge"))
    point = failpoints.CLUSTER_APPLY_BEFORE_GRAPH_CREATE
    declared.configure(HEAD + "  third: {schema: team.pg}\n" + pipeline_text(mode="merge"))

    def edit() -> None:
        declared.write("people.map.yaml", MAP.replace("email: email", "email: lower(email)"))

    with failpoints.arm(point, edit):
        assert codes(declared.apply("ann"), "error") == ["resource_content_changed"]
    assert applied_pipeline(declared).into[0].mode is LoadMode.APPEND


def test_graphs_are_read_by_their_ids(declared: Deployment) -> None:
    declared.configure(
        HEAD + pipeline_text().replace("    into", "      old: {graph: other, types: [Firm]}\n    into")
    )
    needed = [one["to"] for one in declared.validate()["dependencies"] if one["from"] == "pipeline.crm"]
    assert {"graph.other", "schema.other"} < set(needed)
    assert declared.apply("ann")["converged"]
    source = next(one for one in applied_pipeline(declared).sources if isinstance(one, GraphSource))
    assert source.graph == str(declared.graph("other"))


def test_a_storage_root_alone_runs_pipelines_without_relative_paths(declared: Deployment) -> None:
    cluster = f"file://{declared.folder}"
    with pytest.raises(PipelineInvalid, match="is relative to the directory of"):
        AppliedPipelines.open(cluster).read("crm")
    declared.configure(HEAD.replace("root: data/", "root: s3a://lake/") + pipeline_text())
    assert declared.apply("ann")["converged"]
    assert AppliedPipelines.open(cluster).read("crm").sources[0].path == "s3a://lake/people.csv"  # type: ignore[union-attr]


def test_configurations_without_pipelines_keep_their_digest(tmp_path: Path) -> None:
    made = new_deployment(tmp_path, "")
    without = HEAD.replace("providers:\n  source:\n    lake: {kind: files, root: data/}\n", "")
    made.configure(without)
    first = made.plan()["desired_revision"]["config_digest"]
    made.configure(without + "pipelines: {}\n")
    assert made.plan()["desired_revision"]["config_digest"] == first
