"""An Airflow operator that runs a declared pipeline; from the extra `omnigraph[airflow]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from omnigraph.errors import MissingExtra

try:
    from airflow.sdk import BaseOperator
    from airflow.sdk.exceptions import AirflowException, AirflowFailException
except ModuleNotFoundError as absent:
    raise MissingExtra("the Airflow operator", package="apache-airflow", extra="airflow") from absent


class OmnigraphPipelineOperator(BaseOperator):  # type: ignore[misc]  # Airflow is not installed for checks
    """Run a declared pipeline once; its XCom has the run's id and the commit and counts of each target.

    A run in which a target gets no rows fails the task. Airflow repeats the task, if it has `retries`, only
    if another run may help.
    """

    template_fields: ClassVar[Sequence[str]] = ("file", "pipeline", "targets", "parameters", "actor")

    def __init__(
        self,
        *,
        file: str,
        pipeline: str | None = None,
        targets: Sequence[str] = (),
        parameters: Mapping[str, str] | None = None,
        full_refresh: bool = False,
        actor: str | None = None,
        **task: Any,
    ) -> None:
        super().__init__(**task)
        self.file = file
        self.pipeline = pipeline
        self.targets = targets
        self.parameters = parameters
        self.full_refresh = full_refresh
        self.actor = actor

    def execute(self, context: Any) -> dict[str, Any]:
        """Run the pipeline, and return what became of it."""
        from omnigraph.integrations import pipeline_run

        order = pipeline_run.PipelineRun(
            self.file, self.pipeline, self.targets, self.parameters, self.full_refresh, self.actor
        )
        record = pipeline_run.run_pipeline(order)
        if pipeline_run.has_succeeded(record):
            return pipeline_run.summarize(record)
        kind = AirflowException if pipeline_run.is_retryable(record) else AirflowFailException
        raise kind(f"pipeline run {record.run_id}: {record.describe_failure()}")
