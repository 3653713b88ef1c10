"""Evaluates the expressions of a load mapping on Spark, and writes files with the resulting columns."""

from __future__ import annotations

import glob
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.root import Root
from omnigraph.engine.load.sources.columnar import BLOCK_ROWS, open_arrow, open_parquet, validate_batch
from omnigraph.engine.load.sources.input_files import InputFile, find_inputs
from omnigraph.engine.load.sources.item import Format, Item
from omnigraph.engine.load.sources.mapping import InputMapping, MappingEntry
from omnigraph.engine.load.spool import Spool
from omnigraph.errors import BadRequest, PipelineExpressionRefused
from omnigraph.pipeline.failures import failure_reason
from omnigraph.pipeline.fan_out import arrow_schema, fan_out, map_partitions
from omnigraph.pipeline.frame_spool import PARTS, Stage
from omnigraph.pipeline.progress import watch_stage
from omnigraph.pipeline.sql_guard import NotPermitted, SqlGuard, sql_guard
from omnigraph.pipeline.table_scan import to_spark_types
from omnigraph.storage.input_files import is_in_bucket
from omnigraph.storage.input_tables import describe_table, read_batches
from omnigraph.yaml_text import yaml_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def spool_computed(
    spark: SparkSession, files: Sequence[str | os.PathLike[str]], mapping: InputMapping, root: Root
) -> Iterator[Spool]:
    """Replace the files of a load that have expressions by files with the values, without collecting rows."""
    inputs, entries = list[str | os.PathLike[str]](), list(mapping.entries)
    named = {os.fspath(file): file for file in files}
    with ExitStack() as stages:
        for entry, group in _group_files(find_inputs(files, mapping.format_of), mapping):
            if not entry.expressions:
                inputs += [named.get(file.file, file.file) for file in group]
                continue
            frame = _evaluate_expressions(
                _read_files(spark, entry, group), entry, mapping.name, sql_guard(spark)
            )
            # No type has a kind like this, so columns keep their names: the entry maps them.
            stage = Stage(root.uri, root.new_id(), f"rows:{entry.type or entry.edge}")
            stages.callback(stage.clear)
            with watch_stage(spark, "expressions"):
                parts = map_partitions(spark, frame, stage, PARTS).toArrow()
            made = stage.list_files(parts, arrow_schema(frame.schema))
            inputs += made
            paths = tuple(glob.escape(file.at) for file in made)
            plain = replace(entry, files=paths, expressions=(), format=None)
            entries.insert(0, plain)
        yield Spool(tuple(inputs), None, InputMapping(mapping.name, tuple(entries)))


def _group_files(
    found: Sequence[InputFile], mapping: InputMapping
) -> Iterator[tuple[MappingEntry, list[InputFile]]]:
    """Group consecutive files with the same entry, format and columns."""
    group: list[InputFile] = []
    before: tuple[MappingEntry, Format, pa.Schema | None] | None = None
    for file in found:
        entry = mapping.entry(file.file)
        alike = entry, file.format, _read_schema(file) if entry.expressions else None
        if before is not None and alike != before:
            yield before[0], group
            group = []
        before = alike
        group.append(file)
    if before is not None:
        yield before[0], group


def _read_schema(file: InputFile) -> pa.Schema | None:
    """Return the typed columns of a file; None for CSV, whose columns Spark reads as texts."""
    match file.format:
        case Format.PARQUET:
            with open_parquet(_build_item(file)) as opened:
                return opened.schema_arrow.remove_metadata()
        case Format.ARROW:
            with open_arrow(_build_item(file)) as (schema, _):
                return schema.remove_metadata()
        case Format.LANCE:
            return describe_table(file.at).schema.remove_metadata()
    if file.format.is_records:
        raise BadRequest(
            f"'{file.file}' has records that say themselves what they are; expressions are for columns",
            remedy="take the file out of the mapping",
        )
    return None


def _read_files(spark: SparkSession, entry: MappingEntry, files: Sequence[InputFile]) -> DataFrame:
    if files[0].format.is_csv:
        return _read_csv(spark, entry, files)
    schema = to_spark_types(_read_schema(files[0]))
    return fan_out(spark, [item for file in files for item in _split_items(file)], Columns(schema), schema)


def _read_csv(spark: SparkSession, entry: MappingEntry, files: Sequence[InputFile]) -> DataFrame:
    for file in files:
        if is_in_bucket(file.at):
            raise BadRequest(
                f"expressions over CSV in a bucket cannot be worked out: '{file.file}'",
                remedy="copy the file here, or write it as Parquet",
            )
    from pyspark.sql import functions as sql

    read = spark.read.options(
        header=not entry.header,
        sep=entry.delimiter or ",",
        quote='"',
        escape='"',
        multiLine=entry.multiline,
        mode="FAILFAST",
    )
    frame = read.options(enforceSchema=False, inferSchema=False).csv([file.at for file in files])
    if entry.header:
        frame = frame.toDF(*entry.header)
    if not entry.nulls:
        return frame
    columns = [sql.col(f"`{name}`") for name in frame.columns]
    return frame.select(
        *[
            sql.when(~column.isin(*entry.nulls), column).alias(name)
            for name, column in zip(frame.columns, columns, strict=True)
        ]
    )


def _evaluate_expressions(frame: DataFrame, entry: MappingEntry, name: str, guard: SqlGuard) -> DataFrame:
    """Add the columns of the expressions, which replace columns of the same name."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as sql

    made = dict(entry.expressions)
    kept = [column for column in frame.columns if column not in made and column not in entry.drop]
    # No expression can name what no text can know.
    base = f"rows_{secrets.token_hex(16)}"
    try:
        chosen = frame.alias(base).select(
            *[sql.col(f"`{column}`") for column in kept],
            *[sql.expr(guard.check_expression(text, ())).alias(column) for column, text in made.items()],
        )
        chosen.schema  # noqa: B018 - a server analyses lazily
        guard.check_frame(chosen, (), base)
    except NotPermitted as refused:
        raise PipelineExpressionRefused(f"`expressions`: {refused}", file=name, line=entry.place) from None
    except (AnalysisException, ParseException) as wrong:
        raise yaml_error(name, entry.place, f"`expressions`: {failure_reason(str(wrong))}") from None
    return chosen


def _build_item(file: InputFile) -> Item:
    return Item(file.file, file.at, 0, 0, file.format, 0, file.size, file.size)


def _split_items(file: InputFile) -> Iterator[Item]:
    """Yield what one task reads: a row group, a fragment, or any other file whole."""
    whole = _build_item(file)
    if file.format is Format.PARQUET:
        with open_parquet(whole) as opened:
            groups = opened.num_row_groups
        yield from (replace(whole, begin=group, end=group + 1) for group in range(groups))
    elif file.format is Format.LANCE:
        table = describe_table(file.at)
        for piece in table.pieces:
            yield replace(whole, version=table.version, fragments=(piece.number,))
    else:
        yield whole


@dataclass(frozen=True, slots=True)
class Columns:
    """All columns of an item as they are; a task calls it."""

    schema: pa.Schema

    def __call__(self, item: Item) -> Iterator[pa.RecordBatch]:
        if item.format is Format.PARQUET:
            with open_parquet(item) as file:
                yield from map(validate_batch, file.iter_batches(BLOCK_ROWS, row_groups=[item.begin]))
        elif item.format is Format.ARROW:
            with open_arrow(item) as (_, batches):
                yield from map(validate_batch, batches)
        else:
            assert item.version is not None
            yield from read_batches(item.at, item.version, item.fragments, self.schema.names, BLOCK_ROWS)
