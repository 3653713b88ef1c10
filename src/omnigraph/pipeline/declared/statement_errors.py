"""Reports failures of Spark in a run: mistakes in the file with their place, and no secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import (
    OmnigraphError,
    PipelineColumnUnresolved,
    PipelineExpressionRefused,
    PipelineFailed,
    PipelineInvalid,
    PipelineSourceKindUnsupported,
    PipelineSqlInvalid,
    PipelineViewUnknown,
)
from omnigraph.pipeline.declared.declaration import Place
from omnigraph.pipeline.declared.secrets import Secrets
from omnigraph.pipeline.failures import failure_reason, translate_failure
from omnigraph.pipeline.progress import watch_stage
from omnigraph.pipeline.source_reader import NO_FORMAT
from omnigraph.pipeline.sql_guard import NotPermitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KINDS: dict[str, type[PipelineInvalid]] = {
    "TABLE_OR_VIEW_NOT_FOUND": PipelineViewUnknown,
    "UNRESOLVED_COLUMN": PipelineColumnUnresolved,
    "UNRESOLVED_FIELD": PipelineColumnUnresolved,
    "UNRESOLVED_ROUTINE": PipelineColumnUnresolved,
}
"""What Spark calls a mistake, up to the first dot, and what we do."""


@dataclass(frozen=True, slots=True)
class StatementErrors:
    """Translates what Spark rejects or fails at in the session of a pipeline."""

    spark: SparkSession
    secrets: Secrets

    @contextmanager
    def watch(self, stage: str) -> Iterator[None]:
        """Run the actions of a stage."""
        try:
            with watch_stage(self.spark, stage):
                yield
        except PipelineFailed as failure:
            if self.secrets.redact(failure.reason) == failure.reason:
                raise
            # Spark's message contains a secret, so it must not appear as the cause either.
            reason = self.secrets.redact(failure.reason)
            raise PipelineFailed(stage, reason, remedy=failure.remedy) from None

    @contextmanager
    def report_mistakes(self, place: Place, what: str) -> Iterator[None]:
        """Report what Spark rejects in a statement as a mistake in the file."""
        from py4j.protocol import Py4JError
        from pyspark.errors import AnalysisException, ParseException, PySparkException

        redact = self.secrets.redact
        try:
            yield
        except NotPermitted as refused:
            raise PipelineExpressionRefused(f"{what}: {refused}", file=place.file, line=place.line) from None
        except (AnalysisException, ParseException) as wrong:
            condition = str(wrong.getCondition() or "").partition(".")[0]
            kind = _KINDS.get(condition, PipelineSqlInvalid)
            reason = redact(failure_reason(str(wrong)))
            raise kind(f"{what}: {reason}", file=place.file, line=place.line) from None
        except OmnigraphError:
            raise
        except (PySparkException, Py4JError) as failure:
            error = translate_failure(failure, what)
            reason = redact(error.reason if isinstance(error, PipelineFailed) else error.message)
            if NO_FORMAT in reason:
                remedy = "name its package in `spark: {packages: [...]}`"
                raise PipelineSourceKindUnsupported(
                    f"{what}: {reason}", file=place.file, line=place.line, remedy=remedy
                ) from None
            raise PipelineFailed(what, reason) from None
