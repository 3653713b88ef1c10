"""Runs: each step on record, nothing twice, nothing half, and what was cut short is taken up again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.errors import (
    BadRequest,
    InternalError,
    PipelineCheckpointInvariant,
    PipelineDefinitionMoved,
    PipelineRunInProgress,
    PipelineRunLost,
    PipelineRunNotFound,
)
from omnigraph.pipeline.declared import lease
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.batch import Bounds
from omnigraph.pipeline.declared.declaration import Pipeline
from omnigraph.pipeline.declared.lease import Lease, force_unlock, hold_lease
from omnigraph.pipeline.declared.records import Reached, RunRecord
from omnigraph.pipeline.declared.run import RunOptions, parse_params, retry, run
from tests.pipeline.declared.world import SCHEMA, Given, Rows, declare_pipeline, graph_at, into, people
from tests.storage.conftest import s3_server, use_s3

WATERMARK = "checkpoint: watermark"
ONE = {"node:Person": {"email": ["a@x"]}}
OTHER = {"node:Person": {"email": ["b@x"]}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    graph_at(tmp_path / "team")
    return tmp_path


def branches(folder: Path, graph: str = "team") -> list[str]:
    with og.open(folder / graph, read_only=True) as opened:
        return opened.branches.list()


def newest(folder: Path, graph: str = "team") -> str:
    """The moment that main shows."""
    with og.open(folder / graph, read_only=True) as opened:
        return opened.snapshot().id


def stopped_at(point: str, pipeline: Pipeline, given: Given) -> RunRecord:
    """A run whose process ends at a point: nothing after it is written, and its lease stays."""

    class Ended(BaseException):
        pass

    def end() -> None:
        raise Ended

    before = lease._release_lease
    lease._release_lease = lambda *_: None
    try:
        with failpoints.arm(point, end), pytest.raises(Ended):
            run(pipeline, given)
    finally:
        lease._release_lease = before
    return open_ledger(pipeline).list_runs(1)[0]


def merge_commit(done: RunRecord) -> str | None:
    """The commit that brought the rows of a run to main."""
    return done.targets["graph.team"].merged_commit_id


def test_appending_the_same_rows_again_does_nothing(folder: Path) -> None:
    pipeline = declare_pipeline(folder, into())
    first = run(pipeline, Given(folder, ONE))
    second = run(pipeline, Given(folder, ONE))
    assert [one.targets["graph.team"].status for one in (first, second)] == ["succeeded", "skipped"]
    assert (second.status, people(folder / "team"), branches(folder)) == ("succeeded", ["a@x"], ["main"])
    assert (newest(folder), second.targets["graph.team"].commit_ids) == (merge_commit(first), ())
    third = run(pipeline, Given(folder, ONE), RunOptions(full_refresh=True))
    refused = third.targets["graph.team"]
    assert (third.status, refused.error and refused.error["code"]) == ("failed", "key_conflict")
    assert (people(folder / "team"), newest(folder), branches(folder)) == (
        ["a@x"],
        merge_commit(first),
        ["main"],
    )


def test_modes_and_strategies_do_what_loads_do(folder: Path) -> None:
    merging = declare_pipeline(folder, into(mode="merge", strategy="direct"))
    for rows in (ONE, ONE, OTHER):
        done = run(merging, Given(folder, rows)).targets["graph.team"]
        assert (done.status, len(done.commit_ids), done.merged_commit_id) == ("succeeded", 1, None)
    assert people(folder / "team") == ["a@x", "b@x"]
    both: Rows = {**ONE, "node:Firm": {"slug": []}}
    replaced = run(declare_pipeline(folder, into(mode="overwrite")), Given(folder, both))
    assert people(folder / "team") == ["a@x"]
    assert [one["code"] for one in replaced.diagnostics] == ["pipeline_empty_overwrite"]


def test_a_checkpoint_moves_with_each_target_and_bounds_the_next_run(folder: Path) -> None:
    graph_at(folder / "other")
    pipeline = declare_pipeline(folder, f"{into()}\n{into('other')}", WATERMARK)
    run(pipeline, Given(folder, ONE, "2024-01-01"), RunOptions(("team",)))
    given = Given(folder, OTHER, "2024-01-02")
    run(pipeline, given)
    lowers = [bounds["people"].lower for bounds in given.asked]
    assert lowers == ["2024-01-01", None]
    reached = open_ledger(pipeline).read_checkpoint()
    assert {name: one["people"].upper for name, one in reached.items()} == dict.fromkeys(
        ("graph.team", "graph.other"), "2024-01-02"
    )
    before = newest(folder)
    empty = run(pipeline, Given(folder, {"node:Person": {"email": []}}, "2024-01-03"))
    assert {one.status for one in empty.targets.values()} == {"skipped"}
    assert (people(folder / "team"), people(folder / "other")) == (["a@x", "b@x"], ["b@x"])
    assert newest(folder) == before
    assert open_ledger(pipeline).read_checkpoint()["graph.team"]["people"].upper == "2024-01-03"
    assert open_ledger(pipeline).forget(("graph.team",)) == ["graph.team"]
    assert list(open_ledger(pipeline).read_checkpoint()) == ["graph.other"]


def test_one_target_fails_and_a_retry_completes_it(folder: Path) -> None:
    graph_at(folder / "other")
    with og.open(folder / "other") as other, other.write() as tx:
        tx.insert("Person", email="a@x")
    pipeline = declare_pipeline(folder, f"{into('other')}\n{into()}")
    first = run(pipeline, Given(folder, ONE), RunOptions(actor="ann"))
    failed = first.targets["graph.other"]
    assert (first.status, failed.status, failed.error and failed.error["code"]) == (
        "partial",
        "failed",
        "key_conflict",
    )
    with og.open(folder / "other") as other, other.write() as tx:
        tx.delete("Person", ("email", "=", "a@x"))
    again = retry(pipeline, Given(folder, ONE), first.run_id)
    assert (again.run_id, again.status) == (first.run_id, "succeeded")
    assert people(folder / "team") == people(folder / "other") == ["a@x"]
    assert branches(folder) == branches(folder, "other") == ["main"]


@pytest.mark.parametrize("keep", [False, True])
def test_a_branch_that_cannot_be_merged_goes_or_stays_as_asked(folder: Path, keep: bool) -> None:
    pipeline = declare_pipeline(folder, into(on_conflict="keep_branch" if keep else "fail"))

    def write_meanwhile() -> None:
        with og.open(folder / "team") as team, team.write() as tx:
            tx.insert("Person", email="a@x", age=9)

    with failpoints.arm(failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE, failpoints.once(write_meanwhile)):
        done = run(pipeline, Given(folder, {"node:Person": {"email": ["a@x"], "age": [1]}}))
    error = done.targets["graph.team"].error
    assert (done.status, error and error["code"]) == ("failed", "merge_conflicts")
    kept = [f"pipeline-crm-{done.run_id}"] if keep else []
    assert branches(folder) == ["main", *kept]


POINTS = {
    failpoints.PIPELINE_AFTER_START: "pending",
    failpoints.PIPELINE_AFTER_STAGE: "staged",
    failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER: "writing",
    failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE: "merging",
    failpoints.PIPELINE_AFTER_MERGE: "merging",
    failpoints.PIPELINE_BEFORE_CHECKPOINT: "succeeded",
    failpoints.PIPELINE_AFTER_CHECKPOINT: "succeeded",
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("by_retry", [False, True])
def test_what_was_cut_short_comes_once(folder: Path, point: str, by_retry: bool) -> None:
    pipeline = declare_pipeline(folder, into(), WATERMARK)
    cut = stopped_at(point, pipeline, Given(folder, ONE, "2024-01-01"))
    assert (cut.status, cut.targets["graph.team"].status) == ("running", POINTS[point])
    landed = point in (
        failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE,
        failpoints.PIPELINE_AFTER_MERGE,
        failpoints.PIPELINE_BEFORE_CHECKPOINT,
        failpoints.PIPELINE_AFTER_CHECKPOINT,
    )
    if by_retry:
        done = retry(pipeline, Given(folder, ONE, "2024-01-01"), cut.run_id)
        assert (done.run_id, done.status) == (cut.run_id, "succeeded")
    else:
        # A source that is read from a checkpoint has nothing new once the rows have landed.
        rows = {"node:Person": {"email": []}} if landed else ONE
        given = Given(folder, rows, "2024-01-01")
        assert run(pipeline, given).status == "succeeded"
        assert given.asked[0]["people"].lower == ("2024-01-01" if landed else None)
        old = open_ledger(pipeline).read_run(cut.run_id)
        assert old.targets["graph.team"].status == ("succeeded" if landed else "failed")
        if not landed:
            with pytest.raises(BadRequest, match="a later run has already delivered"):
                retry(pipeline, given, cut.run_id)
    assert (people(folder / "team"), branches(folder)) == (["a@x"], ["main"])
    assert open_ledger(pipeline).read_checkpoint()["graph.team"]["people"].upper == "2024-01-01"
    assert lease.read_lease(open_ledger(pipeline)) is None


def test_a_staging_branch_that_somebody_deleted_before_its_merge_is_made_again(folder: Path) -> None:
    pipeline = declare_pipeline(folder, into())
    cut = stopped_at(failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE, pipeline, Given(folder, ONE))
    with og.open(folder / "team") as team:
        team.branches.delete(f"pipeline-crm-{cut.run_id}")
    assert retry(pipeline, Given(folder, ONE), cut.run_id).status == "succeeded"
    assert people(folder / "team") == ["a@x"]


@pytest.mark.parametrize("by_retry", [False, True])
def test_a_merge_that_recovery_has_to_finish_counts_as_landed_once_it_has(
    folder: Path, by_retry: bool
) -> None:
    pipeline = declare_pipeline(folder, into())
    point = failpoints.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT
    with failpoints.arm(point, failpoints.error(point)):
        first = run(pipeline, Given(folder, ONE))
    target = first.targets["graph.team"]
    assert (first.status, target.status, target.retryable) == ("failed", "merging", True)
    given = Given(folder, ONE)
    done = retry(pipeline, given, first.run_id) if by_retry else run(pipeline, given)
    assert (done.status, open_ledger(pipeline).read_run(first.run_id).status) == ("succeeded", "succeeded")
    assert (people(folder / "team"), branches(folder)) == (["a@x"], ["main"])


def test_a_retry_is_of_the_same_pipeline_and_of_a_run_there_was(folder: Path) -> None:
    pipeline = declare_pipeline(folder, into())
    cut = stopped_at(failpoints.PIPELINE_AFTER_START, pipeline, Given(folder, ONE))
    with pytest.raises(PipelineDefinitionMoved):
        retry(declare_pipeline(folder, into(mode="merge")), Given(folder, ONE), cut.run_id)
    with pytest.raises(PipelineRunNotFound):
        retry(pipeline, Given(folder, ONE), "01ARZ3NDEKTSV4RRFFQ69G5FAV")


def test_a_checkpoint_ahead_of_its_run_stops_everything(folder: Path) -> None:
    pipeline = declare_pipeline(folder, into(), WATERMARK)
    cut = stopped_at(failpoints.PIPELINE_AFTER_START, pipeline, Given(folder, ONE, "2024-01-01"))
    reached = Reached("updated", "date", "2024-01-01", cut.run_id)
    open_ledger(pipeline).advance("graph.team", {"people": reached}, cut.run_id)
    with pytest.raises(PipelineCheckpointInvariant):
        run(pipeline, Given(folder, ONE, "2024-01-01"))


def test_a_second_run_is_refused_while_one_is_at_work(folder: Path) -> None:
    pipeline = declare_pipeline(folder, into())
    ledger = open_ledger(pipeline)
    with hold_lease(ledger, "a run") as held:
        with pytest.raises(PipelineRunInProgress) as refused:
            run(pipeline, Given(folder, ONE))
        assert (refused.value.lease_id, refused.value.pid) == (held.lease_id, os.getpid())
        with pytest.raises(BadRequest, match="has no lease 'another'"):
            force_unlock(ledger, "another")
        assert people(folder / "team") == []
        assert force_unlock(ledger, held.lease_id) == held
    done = run(pipeline, Given(folder, ONE))
    assert (done.status, people(folder / "team"), newest(folder)) == (
        "succeeded",
        ["a@x"],
        merge_commit(done),
    )
    elsewhere = Lease("l", "r", "another-machine", 1, "")
    assert not elsewhere.is_dead()


def test_a_run_that_was_taken_over_stops_before_its_next_step(folder: Path) -> None:
    pipeline = declare_pipeline(folder, into())
    ledger = open_ledger(pipeline)

    def take_over() -> None:
        journal = ledger.resume(ledger.list_runs(1)[0].run_id)
        journal.save(journal.record.to_finished())

    with failpoints.arm(failpoints.PIPELINE_AFTER_STAGE, take_over), pytest.raises(PipelineRunLost):
        run(pipeline, Given(folder, ONE))
    assert (people(folder / "team"), branches(folder)) == ([], ["main"])


def test_what_cannot_be_read_fails_the_run_and_may_be_tried_again(folder: Path) -> None:
    pipeline = declare_pipeline(folder, into(), WATERMARK)
    given, before = Given(folder, ONE, "2024-01-01"), newest(folder)

    class Broken(Given):
        def find_bounds(self, known: Bounds, reached: Sequence[Mapping[str, str]]) -> Bounds:
            raise InternalError("the database is away")

    done = run(pipeline, Broken(folder, ONE))
    assert (done.status, done.targets["graph.team"].retryable) == ("failed", True)
    assert (people(folder / "team"), newest(folder)) == ([], before)
    assert open_ledger(pipeline).read_checkpoint() == {}
    again = retry(pipeline, given, done.run_id)
    assert (again.run_id, again.status) == (done.run_id, "succeeded")
    assert (people(folder / "team"), newest(folder)) == (["a@x"], merge_commit(again))
    assert open_ledger(pipeline).read_checkpoint()["graph.team"]["people"].upper == "2024-01-01"


def test_parameters_have_the_types_of_the_file(folder: Path) -> None:
    pipeline = declare_pipeline(folder, into(), "params: {a: 1, b: 0.5, c: x, d: true}")
    given = {"a": "2", "b": "0.25", "c": "3", "d": "false"}
    assert parse_params(pipeline, given) == {"a": 2, "b": 0.25, "c": "3", "d": False}
    for wrong in ({"a": "x"}, {"d": "1"}, {"e": "1"}):
        with pytest.raises(BadRequest, match="parameter"):
            parse_params(pipeline, wrong)


def test_cleanup_and_doctor_leave_records_alone(folder: Path) -> None:
    pipeline = declare_pipeline(folder, into())
    done = run(pipeline, Given(folder, ONE))
    with og.open(folder / "team") as team:
        team.cleanup(keep=1)
        team.optimize()
    assert open_ledger(pipeline).read_run(done.run_id) == done


def test_runs_into_a_graph_in_a_bucket_are_on_record_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as endpoint:
        root = use_s3(endpoint, monkeypatch)
        og.init(root.uri, schema=SCHEMA).close()
        pipeline, name = declare_pipeline(tmp_path, into(f'"{root.uri}"')), f"graph.{root.uri}"
        first = run(pipeline, Given(tmp_path, ONE))
        again = run(pipeline, Given(tmp_path, ONE))
        assert [one.targets[name].status for one in (first, again)] == ["succeeded", "skipped"]
        given = Given(tmp_path, OTHER, content="2")
        stopped = stopped_at(failpoints.PIPELINE_AFTER_MERGE, pipeline, given)
        done = retry(pipeline, given, stopped.run_id)
        ledger = open_ledger(pipeline)
        assert [one.run_id for one in ledger.list_runs()] == [done.run_id, again.run_id, first.run_id]
        assert (done.status, lease.read_lease(ledger)) == ("succeeded", None)
        with og.open(root.uri, read_only=True) as team:
            assert sorted(team.snapshot().rows("Person")["email"].to_pylist()) == ["a@x", "b@x"]
            assert team.branches.list() == ["main"]
