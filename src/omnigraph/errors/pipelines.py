"""What can be wrong with a declared pipeline, and what can stop a run of it."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.errors.conflict import Conflict
from omnigraph.errors.internal import InternalError
from omnigraph.errors.request import BadRequest, NotFound


class PipelineInvalid(BadRequest):
    """A pipeline file cannot be used; several mistakes are in `violations`, each with its own code."""

    code = "pipeline_invalid"

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, remedy: str | None = None
    ) -> None:
        place = "" if file is None else f"{file}: " if line is None else f"{file}:{line}: "
        super().__init__(f"{place}{message}", remedy=remedy)
        self.file = file
        self.line = line

    @classmethod
    def of(cls, problems: Sequence[PipelineInvalid]) -> PipelineInvalid:
        """One mistake as itself, several as one error that has them all."""
        if len(problems) == 1:
            return problems[0]
        error = PipelineInvalid(problems[0].message, remedy="fix the reported problems, then validate again")
        error.violations = tuple(problems)
        error.total = len(problems)
        return error

    violations: tuple[PipelineInvalid, ...] = ()
    total: int = 1
    column: int | None = None


class FuturePhaseField(PipelineInvalid):
    """A field that is kept for later and has no effect yet."""

    code = "future_phase_field"


class PipelineSourceAmbiguous(PipelineInvalid):
    """A source is named by a single word, which may be a kind or a provider."""

    code = "pipeline_source_ambiguous"


class PipelineSourceKindUnsupported(PipelineInvalid):
    """A source or provider is of a kind that cannot be read."""

    code = "pipeline_source_kind_unsupported"


class SourceSecretInline(PipelineInvalid):
    """A secret is written into the file instead of being referred to as `${NAME}`."""

    code = "source_secret_inline"


class SourceSecretMissing(PipelineInvalid):
    """A `${NAME}` of a pipeline is not set in the environment."""

    code = "source_secret_missing"


class PipelineFileMissing(PipelineInvalid):
    """A file that a pipeline names cannot be read."""

    code = "pipeline_file_missing"


class PipelineTargetMissing(PipelineInvalid):
    """The graph or branch that a pipeline loads into is not there."""

    code = "pipeline_target_missing"


class PipelineTypeUnknown(PipelineInvalid):
    """A map names a type that the schema of its graph does not have."""

    code = "pipeline_type_unknown"


class PipelinePropertyUnknown(PipelineInvalid):
    """A map names a property that its type does not have."""

    code = "pipeline_property_unknown"


class PipelinePropertyType(PipelineInvalid):
    """A map gives a property values of a type that never fit it."""

    code = "pipeline_property_type"


class PipelineKeyUnmapped(PipelineInvalid):
    """A map leaves out a key property of a node type."""

    code = "pipeline_key_unmapped"


class PipelineRequiredUnmapped(PipelineInvalid):
    """A map leaves out a property that must have a value."""

    code = "pipeline_required_unmapped"


class PipelineEndpointType(PipelineInvalid):
    """A map of edges has no ends, or ends that cannot be ids of the nodes they join."""

    code = "pipeline_endpoint_type"


class PipelineViewUnknown(PipelineInvalid):
    """A statement or a map uses a view that is no source and no earlier transform."""

    code = "pipeline_view_unknown"


class PipelineSqlInvalid(PipelineInvalid):
    """A statement is not one SELECT or WITH of Spark SQL, or does not parse."""

    code = "pipeline_sql_invalid"


class PipelineExpressionRefused(PipelineInvalid):
    """A statement or expression calls or reads what is neither a row nor a relation of the pipeline."""

    code = "pipeline_expression_refused"

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, remedy: str | None = None
    ) -> None:
        hint = "use functions of rows, and read only sources and earlier views; see docs/pipelines.md"
        super().__init__(message, file=file, line=line, remedy=remedy or hint)


class PipelineColumnUnresolved(PipelineInvalid):
    """An expression uses a column or function that is not there."""

    code = "pipeline_column_unresolved"


class PipelineSchemaDrift(PipelineInvalid):
    """The applied definition of a pipeline no longer fits the live schema of a target."""

    code = "pipeline_schema_drift"

    def __init__(self, pipeline: str, problems: Sequence[PipelineInvalid]) -> None:
        super().__init__(
            f"pipeline '{pipeline}' does not fit the live schema: {problems[0].message}",
            remedy="change its map, then `omnigraph cluster apply`",
        )
        self.pipeline = pipeline
        self.violations = tuple(problems)
        self.total = len(problems)


class PipelineNotApplied(NotFound):
    """A cluster has no applied pipeline of that name."""

    code = "pipeline_not_applied"

    def __init__(self, cluster: str, pipeline: str, applied: Sequence[str]) -> None:
        known = ", ".join(applied) or "none"
        super().__init__(
            f"cluster '{cluster}' has no applied pipeline '{pipeline}'",
            remedy=f"applied are: {known}; declare it in cluster.yaml and run `omnigraph cluster apply`",
        )
        self.cluster = cluster
        self.pipeline = pipeline
        self.applied = tuple(applied)


class PipelineDuplicateKey(BadRequest):
    """Rows of a batch are the same entity and equally new, so none of them is the one to load."""

    code = "pipeline_duplicate_key"

    def __init__(self, key: str, entities: int, example: str) -> None:
        kind, _, name = key.partition(":")
        several = "1 entity has" if entities == 1 else f"{entities} entities have"
        super().__init__(
            f"{kind} type '{name}': {several} several rows with the greatest watermark, such as {example}",
            remedy="choose one of them in a transform, or use a watermark that differs between them",
        )
        self.key = key
        self.entities = entities
        self.example = example


class PipelineRunNotFound(NotFound):
    """There is no run of that id on record."""

    code = "pipeline_run_not_found"

    def __init__(self, pipeline: str, run_id: str) -> None:
        super().__init__(
            f"pipeline '{pipeline}' has no run '{run_id}'", remedy="see `omnigraph pipeline runs`"
        )
        self.pipeline = pipeline
        self.run_id = run_id


class PipelineRunInProgress(Conflict):
    """A run of the pipeline holds its lease; it may be at work on another machine, or dead."""

    code = "pipeline_run_in_progress"

    def __init__(self, pipeline: str, *, run_id: str, lease_id: str, host: str, pid: int) -> None:
        super().__init__(
            f"run '{run_id}' of pipeline '{pipeline}' is under way in process {pid} on '{host}'",
            remedy="wait for it; if that process is gone for certain, "
            f"`omnigraph pipeline force-unlock FILE|NAME {lease_id}`",
        )
        self.pipeline = pipeline
        self.run_id = run_id
        self.lease_id = lease_id
        self.host = host
        self.pid = pid


class PipelineRunLost(Conflict):
    """The lease of a run was taken away from it while it ran; it stops before its next effect."""

    code = "pipeline_run_lost"

    def __init__(self, pipeline: str, run_id: str) -> None:
        super().__init__(
            f"run '{run_id}' of pipeline '{pipeline}' was taken over by another process",
            remedy="see `omnigraph pipeline runs`",
        )
        self.pipeline = pipeline
        self.run_id = run_id


class PipelineDefinitionMoved(Conflict):
    """A run cannot be taken up again, because the pipeline or a schema changed since it began."""

    code = "pipeline_definition_moved"

    def __init__(self, pipeline: str, run_id: str, target: str | None = None) -> None:
        what = f"pipeline '{pipeline}'" if target is None else f"the schema of '{target}'"
        super().__init__(
            f"{what} is not what it was when run '{run_id}' began",
            remedy="begin a new run with `omnigraph pipeline run`",
        )
        self.target = target
        self.pipeline = pipeline
        self.run_id = run_id


class PipelineMovedToCluster(Conflict):
    """A cluster runs the pipeline and has its records, so its file is not run any more."""

    code = "pipeline_moved_to_cluster"

    def __init__(self, pipeline: str, cluster: str, mark: str) -> None:
        super().__init__(
            f"pipeline '{pipeline}' is run by the cluster at '{cluster}'",
            remedy=f"run it with `omnigraph pipeline run {pipeline} --cluster {cluster}`; "
            f"if that cluster is gone for good, remove '{mark}'",
        )
        self.pipeline = pipeline
        self.cluster = cluster
        self.mark = mark


class PipelineRecordsMissing(Conflict):
    """A graph has rows of a pipeline whose records are in another cluster, or gone."""

    code = "pipeline_records_missing"

    def __init__(self, pipeline: str, target: str, cluster: str, here: str) -> None:
        folder = f"__cluster/pipelines/{pipeline}"
        lost = "which has lost them" if cluster == here else f"which is not the one at '{here}'"
        super().__init__(
            f"'{target}' has rows of pipeline '{pipeline}' on record in the cluster at '{cluster}', {lost}",
            remedy=f"copy '{folder}' of that cluster here, or load everything with --full-refresh",
        )
        self.pipeline = pipeline
        self.target = target
        self.cluster = cluster


class PipelineTargetReplaced(Conflict):
    """A target is no longer the graph that earlier runs delivered into."""

    code = "pipeline_target_replaced"

    def __init__(self, pipeline: str, target: str, run_id: str) -> None:
        super().__init__(
            f"'{target}' is not the graph that run '{run_id}' delivered into: another one is at its place",
            remedy=f"load everything with `omnigraph pipeline run {pipeline} --full-refresh "
            f"--target {target}`",
        )
        self.pipeline = pipeline
        self.target = target
        self.run_id = run_id


class PipelineRecordInvalid(InternalError):
    """A record of runs was damaged or written by something else."""

    code = "pipeline_record_invalid"

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(
            f"the record '{uri}' cannot be read: {reason}",
            remedy="restore it from a backup; without the record of a run its rows may be delivered again",
        )
        self.uri = uri


class PipelineCheckpointInvariant(InternalError):
    """A checkpoint is ahead of a run that is not done, which the order of writing excludes."""

    code = "pipeline_checkpoint_invariant"

    def __init__(self, pipeline: str, run_id: str, target: str) -> None:
        super().__init__(
            f"the checkpoint of pipeline '{pipeline}' for '{target}' was moved by run '{run_id}', "
            "which has not finished",
            remedy="look at the records of its runs, then `omnigraph pipeline reset-checkpoint`",
        )
        self.pipeline = pipeline
        self.run_id = run_id
        self.target = target
