"""Runs a pipeline, retries a run, and closes runs that were interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from omnigraph import failpoints, graph
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.permissions import Permissions
from omnigraph.engine.graph.root import new_id
from omnigraph.engine.tasks.runner import collect_metrics
from omnigraph.errors import (
    BadRequest,
    OmnigraphError,
    PipelineCheckpointInvariant,
    PipelineDefinitionMoved,
    PipelineTargetReplaced,
)
from omnigraph.graph import Graph
from omnigraph.lang.values import shorten_legibly
from omnigraph.pipeline.declared.adoption import FirstTarget, hold_ledger, identify_graph
from omnigraph.pipeline.declared.batch import Extract
from omnigraph.pipeline.declared.check import check
from omnigraph.pipeline.declared.declaration import Destination, Parameter, Pipeline, Strategy
from omnigraph.pipeline.declared.deliver import INTERRUPTED, Delivery, may_have_landed, staging_branch
from omnigraph.pipeline.declared.lineage import record_lineage
from omnigraph.pipeline.declared.records import (
    Journal,
    Ledger,
    OpenStore,
    RunRecord,
    Status,
    Step,
    TargetRecord,
    format_now,
)
from omnigraph.storage.stores import open_store

if TYPE_CHECKING:
    from omnigraph.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of a run."""

    targets: tuple[str, ...] = ()
    """Those of `into` that take part; all if none is named."""
    full_refresh: bool = False
    params: Mapping[str, Parameter] | None = None
    actor: str | None = None
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """The policy of each target that has one."""
    open_store: OpenStore = open_store


def run(pipeline: Pipeline, extract: Extract, order: RunOptions = RunOptions()) -> RunRecord:  # noqa: B008 - a frozen value
    """Run a pipeline once: close interrupted runs, then deliver the rows of each target."""
    chosen = select_targets(pipeline, order.targets)
    check(pipeline)
    run_id = new_id()
    with (
        open_targets(pipeline, order) as graphs,
        hold_ledger(pipeline, run_id, _first_target(pipeline, graphs, order), order.open_store) as ledger,
    ):
        runs = ledger.list_runs()
        for earlier in runs:
            if _is_interrupted(earlier):
                _Run(pipeline, graphs, ledger, ledger.resume(earlier.run_id), extract).close()
        if not order.full_refresh:
            _refuse_replaced(pipeline, chosen, graphs, runs)
        record = RunRecord(
            run_id,
            pipeline.name,
            pipeline.digest,
            format_now(),
            {one.name: _new_target(one, graphs[one.name]) for one in chosen},
            actor=order.actor,
            params={**dict(pipeline.params), **(order.params or {})},
            full_refresh=order.full_refresh,
            spark=extract.describe_engine(),
        )
        journal = ledger.begin(record)
        failpoints.reach(failpoints.PIPELINE_AFTER_START)
        with record_lineage(pipeline, journal):
            return _Run(pipeline, graphs, ledger, journal, extract).deliver()


def retry(
    pipeline: Pipeline,
    extract: Extract,
    run_id: str,
    order: RunOptions = RunOptions(),  # noqa: B008 - a frozen value
) -> RunRecord:
    """Continue a run that was interrupted or failed; rows that landed are never delivered twice."""
    check(pipeline)
    with (
        open_targets(pipeline, order) as graphs,
        hold_ledger(pipeline, run_id, _first_target(pipeline, graphs, order), order.open_store) as ledger,
    ):
        journal = ledger.resume(run_id)
        _refuse_moved(pipeline, journal.record, ledger, graphs)
        resumed = _Run(pipeline, graphs, ledger, journal, extract)
        resumed.inspect()
        actor = order.actor or journal.record.actor
        journal.save(replace(journal.record, status=Status.RUNNING, finished_at=None, actor=actor))
        with record_lineage(pipeline, journal):
            return resumed.deliver()


def _first_target(pipeline: Pipeline, graphs: Mapping[str, Graph], order: RunOptions) -> FirstTarget:
    return FirstTarget(identify_graph(graphs[pipeline.into[0].name]), starts_over=order.full_refresh)


def _refuse_replaced(
    pipeline: Pipeline, chosen: Sequence[Destination], graphs: Mapping[str, Graph], runs: Sequence[RunRecord]
) -> None:
    """Refuse to go on from rows that went into another graph at the same place."""
    for name in (one.name for one in chosen):
        landed = (one for one in runs if name in one.targets and one.targets[name].status.is_landed)
        last = next(landed, None)
        if last is not None and last.targets[name].graph not in (None, identify_graph(graphs[name])):
            raise PipelineTargetReplaced(pipeline.name, name, last.run_id)


def select_targets(pipeline: Pipeline, named: Sequence[str]) -> list[Destination]:
    """Return the targets that are named, with or without the prefix `graph.`; all by default."""
    known = {one.name: one for one in pipeline.into}
    wanted = [name if name in known else f"graph.{name}" for name in named]
    for name, given in zip(wanted, named, strict=True):
        if name not in known:
            raise BadRequest(
                f"pipeline '{pipeline.name}' has no target '{shorten_legibly(given)}'",
                remedy=f"it has: {', '.join(known)}",
            )
    return [one for one in pipeline.into if not wanted or one.name in wanted]


@contextmanager
def open_targets(pipeline: Pipeline, order: RunOptions) -> Iterator[dict[str, Graph]]:
    """Open all targets, each under its policy; fail before any effect if the actor may not write there."""
    with ExitStack() as opened:
        graphs = {}
        for one in pipeline.into:
            policy = order.policies.get(one.name)
            graphs[one.name] = opened.enter_context(graph.open(one.uri, policy=policy, actor=order.actor))
            if policy is not None:
                _require_permissions(pipeline, one, Permissions(policy, order.actor))
        yield graphs


def _require_permissions(pipeline: Pipeline, target: Destination, permissions: Permissions) -> None:
    if target.strategy is Strategy.DIRECT:
        permissions.require("change", branch=target.branch)
        return
    staging = staging_branch(pipeline, "run")
    permissions.require("branch_create", branch=target.branch, target=staging)
    permissions.require("change", branch=staging)
    permissions.require("branch_merge", branch=staging, target=target.branch)
    permissions.require("branch_delete", target=staging)


def _new_target(target: Destination, graph: Graph) -> TargetRecord:
    schema = graph.schema.fingerprint
    return TargetRecord(target.mode.value, target.branch, schema=schema, graph=identify_graph(graph))


def _refuse_moved(pipeline: Pipeline, record: RunRecord, ledger: Ledger, graphs: Mapping[str, Graph]) -> None:
    """Reject a retry after a later run delivered the rows, or after the declaration or a schema changed."""
    if record.definition_digest != pipeline.digest:
        raise PipelineDefinitionMoved(pipeline.name, record.run_id)
    for name, state in record.targets.items():
        if not state.status.is_landed and state.schema not in (None, graphs[name].schema.fingerprint):
            raise PipelineDefinitionMoved(pipeline.name, record.run_id, name)
        if not state.status.is_landed and state.graph not in (None, identify_graph(graphs[name])):
            raise PipelineTargetReplaced(pipeline.name, name, record.run_id)
    later = [one for one in ledger.list_runs() if one.run_id > record.run_id]
    for name, state in record.targets.items():
        if state.status.is_landed:
            continue
        if any(name in one.targets and one.targets[name].status.is_landed for one in later):
            raise BadRequest(
                f"a later run has already delivered the rows of '{name}'", remedy="begin a new run instead"
            )


@dataclass(frozen=True, slots=True)
class _Run:
    """One run and everything it works with."""

    pipeline: Pipeline
    graphs: Mapping[str, Graph]
    ledger: Ledger
    journal: Journal
    extract: Extract

    def deliver(self) -> RunRecord:
        """Deliver the rows of each target that does not have them."""
        journal = self.journal
        with collect_metrics() as metrics:
            try:
                self._read_and_deliver()
            finally:
                self.extract.release()
        tasks = (*journal.record.tasks, *(one.to_json() for one in metrics))
        journal.save(replace(journal.record.to_finished(), tasks=tasks))
        return journal.record

    def _read_and_deliver(self) -> None:
        journal = self.journal
        try:
            reached = [delivery.read_watermarks() for delivery in self._list_open()]
            read = self.extract.find_bounds(journal.record.sources, reached)
            journal.save(replace(journal.record, sources=read))
        except OmnigraphError as failure:
            for delivery in self._list_open():
                delivery.record_failure(failure)
        for delivery in self._list_open():
            if journal.find_target(delivery.name).status in (Step.PENDING, Step.STAGED):
                delivery.deliver()

    def inspect(self) -> None:
        """Find out how far each target came before the interruption, and prepare it for a retry."""
        for delivery in self._list_deliveries():
            self._inspect_target(delivery)
            if self.journal.find_target(delivery.name).status is Step.FAILED:
                self.journal.move(delivery.name, status=Step.STAGED, error=None, retryable=False)

    def close(self) -> None:
        """Close a run that a new one follows, which will deliver what did not land."""
        for delivery in self._list_deliveries():
            self._inspect_target(delivery)
            if not _is_over(self.journal.find_target(delivery.name)):
                error = {"code": INTERRUPTED, "message": "the run was cut short, and a new one followed"}
                self.journal.move(delivery.name, status=Step.FAILED, error=error, retryable=False)
        self.journal.save(self.journal.record.to_finished())

    def _inspect_target(self, delivery: Delivery) -> None:
        """Update a target by what is in the graph, not by what the record planned next."""
        state = self.journal.find_target(delivery.name)
        self._refuse_ahead(delivery, state)
        if state.status is Step.MERGING:
            self._inspect_merge(delivery, state)
        elif state.status is Step.WRITING:
            # Nothing reached the target, or it was a merge of the same rows by their keys: begin again.
            self.journal.move(delivery.name, status=Step.STAGED)
            if delivery.target.strategy is Strategy.BRANCH_MERGE:
                delivery.drop_staging_branch()
        elif state.status is Step.FAILED:
            delivery.drop_failed_branch((state.error or {}).get("code") == "merge_conflicts")
        elif state.status.is_landed:
            delivery.drop_staging_branch()
            delivery.reach_checkpoint()

    def _inspect_merge(self, delivery: Delivery, state: TargetRecord) -> None:
        """Look for the merge in the history of the target: a merge commit names what it merged."""
        commits = delivery.graph.commits.list(delivery.target.branch)
        taken = next((one for one in commits if one.merged_parent in state.commit_ids), None)
        if taken is not None:
            delivery.record_landed(taken.id)
        elif state.staging_branch in delivery.graph.branches:
            try:
                delivery.merge()
            except OmnigraphError as failure:
                if may_have_landed(failure):
                    raise
                delivery.record_failure(failure)
                return
        else:
            self.journal.move(delivery.name, status=Step.STAGED, staging_branch=None)
            return
        delivery.reach_checkpoint()

    def _refuse_ahead(self, delivery: Delivery, state: TargetRecord) -> None:
        reached = self.ledger.read_checkpoint().get(delivery.name, {})
        run_id = self.journal.record.run_id
        if not state.status.is_landed and any(one.run_id == run_id for one in reached.values()):
            raise PipelineCheckpointInvariant(self.pipeline.name, run_id, delivery.name)

    def _list_deliveries(self) -> list[Delivery]:
        """The targets of the run that the pipeline still has."""
        return [
            Delivery(self.pipeline, one, self.graphs[one.name], self.ledger, self.journal, self.extract)
            for one in self.pipeline.into
            if one.name in self.journal.record.targets
        ]

    def _list_open(self) -> list[Delivery]:
        return [
            one for one in self._list_deliveries() if not self.journal.find_target(one.name).status.is_landed
        ]


def _is_interrupted(record: RunRecord) -> bool:
    """Whether a run was interrupted, or ended without knowing whether its merge took place."""
    unknown = any(one.status is Step.MERGING for one in record.targets.values())
    return record.status is Status.RUNNING or unknown


def _is_over(state: TargetRecord) -> bool:
    return state.status.is_landed or state.status is Step.FAILED


def parse_params(pipeline: Pipeline, given: Mapping[str, str]) -> dict[str, Any]:
    """Parse parameters of the command line with the types declared in the file."""
    declared = dict(pipeline.params)
    return {name: _parse_parameter(pipeline, declared, name, text) for name, text in given.items()}


def _parse_parameter(
    pipeline: Pipeline, declared: Mapping[str, Parameter], name: str, text: str
) -> Parameter:
    if name not in declared:
        raise BadRequest(
            f"pipeline '{pipeline.name}' has no parameter '{shorten_legibly(name)}'",
            remedy=f"it has: {', '.join(declared) or 'none'}",
        )
    kind = type(declared[name])
    if kind is bool:
        if text in ("true", "false"):
            return text == "true"
    else:
        try:
            return kind(text)
        except ValueError:
            pass
    raise BadRequest(f"parameter '{name}' is not a {kind.__name__}: '{shorten_legibly(text)}'")
