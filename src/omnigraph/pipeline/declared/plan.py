"""What a run would do: statements and maps analysed by Spark, rows counted on request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import JavaNotFound, MissingExtra
from omnigraph.pipeline.declared.adoption import open_ledger
from omnigraph.pipeline.declared.check import catalog_of, check
from omnigraph.pipeline.declared.declaration import Destination, Parameter, Pipeline
from omnigraph.pipeline.declared.deliver import bounds_of
from omnigraph.pipeline.declared.extraction import SparkExtract, columns_of
from omnigraph.pipeline.declared.run import select_targets

SQL_CHECK_SKIPPED = "pipeline_sql_check_skipped"


@dataclass(frozen=True, slots=True)
class TypePlan:
    """What a type would get."""

    columns: Mapping[str, str] | None
    """With their types in Spark; None without Spark."""
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """What a target would get."""

    target: Destination
    types: Mapping[str, TypePlan]


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """What a run would do."""

    pipeline: Pipeline
    targets: tuple[TargetPlan, ...]
    warnings: tuple[Mapping[str, str], ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The plan as scripts read it."""
        return {
            "pipeline": self.pipeline.name,
            "definition_digest": self.pipeline.digest,
            "views": self.pipeline.list_views(),
            "targets": {one.target.name: _target_json(one) for one in self.targets},
            "diagnostics": list(self.warnings),
        }


def plan(pipeline: Pipeline, *, params: Mapping[str, Parameter] | None = None) -> PipelinePlan:
    """Check a pipeline, and let Spark analyse its statements where there is one."""
    check(pipeline)
    try:
        extract = open_extract(pipeline, params)
    except (MissingExtra, JavaNotFound) as absent:
        warning = {"code": SQL_CHECK_SKIPPED, "severity": "warning", "message": absent.message}
        blank = tuple(
            TargetPlan(one, {key: TypePlan(None) for key in one.by_table()}) for one in pipeline.into
        )
        return PipelinePlan(pipeline, blank, (warning,))
    return _plan_targets(pipeline, extract, pipeline.into, count=False, full_refresh=False)


def dry_run(
    pipeline: Pipeline, extract: SparkExtract, *, targets: tuple[str, ...] = (), full_refresh: bool = False
) -> PipelinePlan:
    """Read and transform, count what each type would get, and write nothing."""
    check(pipeline)
    chosen = tuple(select_targets(pipeline, targets))
    return _plan_targets(pipeline, extract, chosen, count=True, full_refresh=full_refresh)


def open_extract(pipeline: Pipeline, params: Mapping[str, Parameter] | None = None) -> SparkExtract:
    """Open the Spark that the pipeline names, or the available one."""
    from omnigraph.pipeline.session import session

    spark = session(pipeline.spark.master, settings=pipeline.spark.list_settings())
    return SparkExtract(pipeline, spark, params=params)


def _plan_targets(
    pipeline: Pipeline,
    extract: SparkExtract,
    targets: tuple[Destination, ...],
    *,
    count: bool,
    full_refresh: bool,
) -> PipelinePlan:
    reached = {} if full_refresh else open_ledger(pipeline).read_checkpoint()
    made = []
    try:
        # Without a count nothing needs the bounds, and finding them reads every row.
        before = [
            {name: one.upper for name, one in reached.get(target.name, {}).items()} for target in targets
        ]
        read = extract.find_bounds({}, before) if count else extract.unread_bounds()
        for target in targets:
            bounds = bounds_of(pipeline, read, reached.get(target.name, {}))
            frames = extract.build_frames(target, catalog_of(target), bounds)
            rows = extract.count_rows(frames) if count else {}
            types = {key: TypePlan(columns_of(frame), rows.get(key)) for key, frame in frames.items()}
            made.append(TargetPlan(target, types))
    finally:
        extract.release()
    return PipelinePlan(pipeline, tuple(made))


def _target_json(planned: TargetPlan) -> dict[str, Any]:
    target = planned.target
    return {
        "graph": target.uri,
        "branch": target.branch,
        "mode": target.mode.value,
        "strategy": target.strategy.value,
        "types": {
            key: {"columns": None if one.columns is None else dict(one.columns), "rows": one.rows}
            for key, one in planned.types.items()
        },
    }
