"""Runs whose process is killed: what each row of the crash table says, the next command does.

Every cell is a deployment of its own. One process forks a child for each, which runs the pipeline and is
killed at a point; then `retry` or the next `run` must leave every row once, no staging branch, and the
checkpoint where the rows are. `make test` takes one of the two for each row, `make torture` both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.errors import PipelineCheckpointInvariant, PipelineDefinitionMoved, PipelineMovedToCluster
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.lease import read_lease
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.declared.records import Ledger, Reached, RunRecord
from omnigraph.pipeline.declared.run import retry, run
from tests.cluster.deployment import Deployment
from tests.cluster.pipelines import HEAD, applied_pipeline, new_deployment, pipeline_text
from tests.pipeline.declared.dying import POINT, ROWS, UPPER
from tests.pipeline.declared.killing import kill_runs
from tests.pipeline.declared.world import PEOPLE_MAP, Given, people

pytestmark = pytest.mark.crash

WATERMARK = {"checkpoint": "watermark"}
APPEND = pipeline_text(more=WATERMARK)
DIRECT = pipeline_text(mode="merge, strategy: direct", more=WATERMARK)


@dataclass(frozen=True)
class Row:
    """A cell: where the process dies, what the record says then, and what was done to it afterwards."""

    point: str
    status: str
    landed: bool
    """Whether the rows are in the target already, or recovery will put them there."""
    direct: bool = False
    then: Callable[[Deployment, RunRecord], None] | None = None


def delete_staging_branch(deployment: Deployment, cut: RunRecord) -> None:
    """As somebody who takes it for garbage."""
    branch = cut.targets["graph.team"].staging_branch
    assert branch is not None
    with og.open(deployment.graph("team")) as team:
        team.branches.delete(branch)


ROWS_OF_TABLE = {
    "P1 pending": Row(failpoints.PIPELINE_AFTER_START, "pending", False),
    "P1 staged": Row(failpoints.PIPELINE_AFTER_STAGE, "staged", False),
    "P2 writing": Row(failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER, "writing", False),
    "P3a not merged": Row(failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE, "merging", True),
    "P3a merged": Row(failpoints.PIPELINE_AFTER_MERGE, "merging", True),
    "P3b merged, branch gone": Row(
        failpoints.PIPELINE_AFTER_MERGE, "merging", True, then=delete_staging_branch
    ),
    "P3b branch gone, not merged": Row(
        failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE, "merging", False, then=delete_staging_branch
    ),
    "P4 before": Row(failpoints.PIPELINE_BEFORE_CHECKPOINT, "succeeded", True),
    "P4 after": Row(failpoints.PIPELINE_AFTER_CHECKPOINT, "succeeded", True),
    "P5 not written": Row(failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER, "writing", False, direct=True),
    "P5 written": Row(failpoints.PIPELINE_BEFORE_CHECKPOINT, "succeeded", True, direct=True),
}
HEALERS = ("retry", "run")
SEED = int(os.environ.get("OMNIGRAPH_SEED") or 1)


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Deployment]:
    """Applied deployments, by whether the target is loaded directly."""
    found = {}
    for direct, text in ((False, APPEND), (True, DIRECT)):
        made = new_deployment(tmp_path_factory.mktemp("cluster") / "base", text)
        assert made.import_()["ok"]
        assert made.apply("ann")["converged"]
        found[direct] = made
    return found


def prepare(bases: dict[bool, Deployment], folder: Path, name: str, row: Row) -> Deployment:
    made = bases[row.direct].copy_to(folder / name)
    (made.folder / POINT).write_text(row.point)
    return made


def require_healed(deployment: Deployment, ledger: Ledger) -> None:
    assert people(deployment.graph("team")) == ["a@x"]
    assert ledger.read_checkpoint()["graph.team"]["people"].upper == UPPER
    assert read_lease(ledger) is None
    with og.open(deployment.graph("team"), read_only=True) as team:
        assert team.branches.list() == ["main"]
    assert all(one.status != "running" for one in ledger.list_runs())


def test_every_row_of_the_crash_table_is_healed_by_retry_and_by_the_next_run(
    bases: dict[bool, Deployment], tmp_path: Path
) -> None:
    cells = {
        f"{name}, {healer}": (row, healer)
        for number, (name, row) in enumerate(ROWS_OF_TABLE.items())
        for healer in (HEALERS if os.environ.get("OMNIGRAPH_TORTURE") else [HEALERS[(number + SEED) % 2]])
    }
    made = {name: prepare(bases, tmp_path, name.replace(" ", "_"), row) for name, (row, _) in cells.items()}
    killed = kill_runs(tmp_path)
    for name, (row, healer) in cells.items():
        deployment = made[name]
        pipeline = applied_pipeline(deployment)
        ledger = open_ledger(pipeline)
        try:
            [cut] = ledger.list_runs()
            left = read_lease(ledger)
            assert left is not None
            assert (left.run_id, left.pid) == (cut.run_id, killed[deployment.folder.name])
            assert (cut.status, cut.targets["graph.team"].status) == ("running", row.status)
            if row.then is not None:
                row.then(deployment, cut)
            given = Given(deployment.folder, ROWS, UPPER)
            if healer == "retry":
                assert retry(pipeline, given, cut.run_id).status == "succeeded"
            else:
                # A source that is read from a checkpoint has nothing new once the rows have landed.
                given.rows = {"node:Person": {"email": []}} if row.landed else ROWS
                assert run(pipeline, given).status == "succeeded"
                assert given.asked[0]["people"].lower == (UPPER if row.landed else None)
            require_healed(deployment, ledger)
        except BaseException as error:
            error.add_note(name)
            raise


def test_a_moved_definition_and_a_checkpoint_that_is_ahead_stop_a_retry(
    bases: dict[bool, Deployment], tmp_path: Path
) -> None:
    row = ROWS_OF_TABLE["P1 staged"]
    moved, ahead = (prepare(bases, tmp_path, name, row) for name in ("P7", "P8"))
    kill_runs(tmp_path)
    [cut] = open_ledger(applied_pipeline(moved)).list_runs()
    moved.configure(HEAD + pipeline_text(mode="merge", more=WATERMARK))
    assert moved.apply("ann")["converged"]
    pipeline, given = applied_pipeline(moved), Given(moved.folder, ROWS, UPPER)
    with pytest.raises(PipelineDefinitionMoved):
        retry(pipeline, given, cut.run_id)
    assert run(pipeline, given).status == "succeeded"
    require_healed(moved, open_ledger(pipeline))
    pipeline = applied_pipeline(ahead)
    ledger = open_ledger(pipeline)
    [cut] = ledger.list_runs()
    ledger.advance("graph.team", {"people": Reached("updated", "date", UPPER, cut.run_id)}, cut.run_id)
    with pytest.raises(PipelineCheckpointInvariant):
        retry(pipeline, given, cut.run_id)
    with pytest.raises(PipelineCheckpointInvariant):
        run(pipeline, given)
    assert people(ahead.graph("team")) == []


def test_a_killed_adoption_and_a_killed_run_of_the_file_are_healed_by_the_cluster(
    bases: dict[bool, Deployment], tmp_path: Path
) -> None:
    """The file appended rows, or died in the middle of it; then the cluster runs, or dies while adopting."""
    text = (
        "pipelines:\n  crm:\n    sources:\n      people: {format: csv, path: data/people.csv,"
        " watermark: {column: updated, type: date}}\n    checkpoint: watermark\n"
        f"    into: [{{graph: graphs/team.omni, mode: append, map: {PEOPLE_MAP}}}]\n"
    )
    files = ("merging", "writing")
    points = {"merging": failpoints.PIPELINE_AFTER_MERGE, "writing": ROWS_OF_TABLE["P2 writing"].point}
    made = {name: prepare(bases, tmp_path, name, Row(points[name], name, True)) for name in files}
    for one in made.values():
        one.write("crm.yaml", text)
    kill_runs(tmp_path)
    for name, point in (
        ("merging", failpoints.PIPELINE_BEFORE_ADOPTION),
        ("writing", failpoints.PIPELINE_AFTER_ADOPTION),
    ):
        (made[name].folder / "crm.yaml").rename(made[name].folder / "file.yaml")
        made[name].write(POINT, point)
    kill_runs(tmp_path)
    for name, one in made.items():
        file, pipeline = read_pipeline(one.folder / "file.yaml"), applied_pipeline(one)
        given = Given(one.folder, ROWS, UPPER)
        with pytest.raises(PipelineMovedToCluster):
            run(file, given)
        given.rows = {"node:Person": {"email": []}} if name == "merging" else ROWS
        assert run(pipeline, given).status == "succeeded"
        require_healed(one, open_ledger(pipeline))
        assert json.loads((one.graph("team") / "__pipelines/crm/moved.json").read_text())["status"] == "moved"
