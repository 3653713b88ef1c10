"""Reads any source that Spark has: one way for all formats, catalog tables included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.engine.load.sources.spark_source import SparkSource
from omnigraph.errors import BadRequest, OmnigraphError, PipelineFailed, PipelineSourceKindUnsupported
from omnigraph.pipeline.declared.secrets import SECRET_MEMBERS, Secrets, replace_values
from omnigraph.pipeline.failures import failure_reason, translate_failure
from omnigraph.pipeline.spark_settings import PACKAGES_SETTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NO_FORMAT = "[DATA_SOURCE_NOT_FOUND]"
"""In the reason of a failure that is none of analysis to Spark."""


def read_source(spark: SparkSession, source: SparkSource) -> DataFrame:
    """Return what Spark reads of a source; failures are Spark's own."""
    reader = spark.read.options(**source.options)
    if source.table is not None:
        return reader.table(source.table)
    return reader.format(source.format).load(list(source.paths) or None)


@contextmanager
def open_source(spark: SparkSession, source: SparkSource) -> Iterator[DataFrame]:
    """Open the source of a load: failures in the block name the source and none of its secrets."""
    secrets = Secrets()
    options = {name: secrets.resolve(text, None) for name, text in source.options.items()}
    hidden = {**_secret_values(options), **secrets.list_values()}
    found = replace(source, path=tuple(map(_make_absolute, source.paths)), options=options)
    with _report_failures(source.format, hidden):
        yield read_source(spark, found)


@contextmanager
def _report_failures(form: str, hidden: Mapping[str, str]) -> Iterator[None]:
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException, PySparkException

    redact = partial(replace_values, values=hidden)
    what = f"spark:{form}"
    try:
        yield
    except (AnalysisException, ParseException, IllegalArgumentException) as wrong:
        raise BadRequest(
            f"Spark cannot read '{what}': {redact(failure_reason(str(wrong)))}",
            remedy="check the path and the options (`--option NAME=VALUE`)",
        ) from None
    except PipelineFailed as failure:
        if redact(failure.reason) == failure.reason:
            raise
        # Spark's message contains a secret, so it must not appear as the cause either.
        raise PipelineFailed(failure.stage, redact(failure.reason), remedy=failure.remedy) from None
    except OmnigraphError:
        raise
    except (PySparkException, Py4JError) as failure:
        error = translate_failure(failure, what)
        reason = redact(error.reason if isinstance(error, PipelineFailed) else error.message)
        if NO_FORMAT in reason:
            remedy = f"name its package in {PACKAGES_SETTING}, and start Spark with it"
            raise PipelineSourceKindUnsupported(f"{what}: {reason}", remedy=remedy) from None
        raise PipelineFailed(what, reason) from None


def _secret_values(options: Mapping[str, str]) -> dict[str, str]:
    """The values that options have which always hold secrets."""
    return {value: f"({name})" for name, value in options.items() if name.lower() in SECRET_MEMBERS and value}


def _make_absolute(path: str) -> str:
    """Make a path absolute: a Spark server runs in another folder. A URI stays as it is."""
    return path if "://" in path else str(Path(path).absolute())
