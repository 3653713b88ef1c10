"""A Dagster asset that runs a declared pipeline, and its resource; from the extra `omnigraph[dagster]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors import MissingExtra

try:
    import dagster
except ModuleNotFoundError as absent:
    raise MissingExtra("the Dagster asset", package="dagster", extra="dagster") from absent


class OmnigraphPipelines(dagster.ConfigurableResource):  # type: ignore[misc]  # not installed for checks
    """Runs declared pipelines as one actor."""

    actor: str | None = None

    def run(
        self,
        file: str,
        pipeline: str | None = None,
        *,
        targets: Sequence[str] = (),
        parameters: Mapping[str, str] | None = None,
        full_refresh: bool = False,
    ) -> dict[str, Any]:
        """Run a pipeline once; returns its id, and commit and counts of each target."""
        from omnigraph.integrations import pipeline_run

        order = pipeline_run.PipelineRun(file, pipeline, targets, parameters, full_refresh, self.actor)
        record = pipeline_run.run_pipeline(order)
        if pipeline_run.has_succeeded(record):
            return pipeline_run.summarize(record)
        raise dagster.Failure(
            f"pipeline run {record.run_id}: {record.describe_failure()}",
            metadata={"run": record.run_id},
            allow_retries=pipeline_run.is_retryable(record),
        )


def pipeline_asset(
    file: str, pipeline: str | None = None, *, name: str, resource: str = "omnigraph", **asset: Any
) -> Any:
    """Return an asset that is materialized by a run of a pipeline.

    `resource` names the `OmnigraphPipelines` of the definitions; further arguments are those of
    `dagster.asset`.
    """

    def materialize(context: Any) -> Any:
        done = getattr(context.resources, resource).run(file, pipeline)
        return dagster.MaterializeResult(metadata={"run": done["run_id"], "targets": done["targets"]})

    # Dagster compares annotations with its own classes, and these are texts here.
    materialize.__annotations__ = {"context": dagster.AssetExecutionContext}
    return dagster.asset(name=name, required_resource_keys={resource}, **asset)(materialize)
