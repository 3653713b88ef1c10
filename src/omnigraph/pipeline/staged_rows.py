"""Rows of a DataFrame that tasks check and stage themselves, for a process that only commits them.

A task reads its rows as a load reads a file: shapes them, checks each on its own, and writes those that are
fine where they can become part of the table. What comes back is one small value for each partition. The
rules across rows need all of them, so the committing process checks these, on ids and ends alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root, new_id
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.mapping import InputMapping
from omnigraph.engine.load.sources.plan import file_of, plan_items
from omnigraph.engine.load.spool import InputNames, PassedRows
from omnigraph.engine.load.staging import StagedItem, StagedLoad, stage_item
from omnigraph.engine.rows.ids import FILES_IN_GROUP, LoadIds
from omnigraph.errors import InternalError, LoadRejected
from omnigraph.pipeline.frame_spool import frame_partition, frame_portions, to_loadable
from omnigraph.storage.scratch import TemporaryFolder, wrap_temporary_errors, write_rows

REPORT_LIMIT = 100
"""So many violations a task reports one by one, as many as a load does."""


@dataclass(frozen=True, slots=True)
class StagedPart:
    """What a task staged."""

    item: StagedItem
    rows: tuple[int, ...]
    """How many rows each of its files had."""


@dataclass(frozen=True, slots=True)
class RowStage:
    """Stages the rows of one type; a task calls it with the batches of its partition."""

    job: LoadJob
    schema_hash: str
    key: str
    columns: pa.Schema
    """Those of the DataFrame."""
    mapping: InputMapping | None = None

    @property
    def type_name(self) -> str:
        """The type without its kind."""
        return self.key.partition(":")[2]

    def check_columns(self) -> None:
        """Reject columns that do not fit the type, before any task runs."""
        with TemporaryFolder("rows") as folder:
            file = self._write_file(folder, 0, self.columns.empty_table())
            self._plan_files([file])

    def for_batch(self, batch: int) -> RowStage:
        """The same for one batch of a stream, with its own folder and new ids."""
        root = self.job.root
        job = replace(self.job, scratch=f"{self.job.scratch}-{batch}", ids=LoadIds(root.clock() // 1000))
        return replace(self, job=job)

    def stage(self, batches: Iterable[pa.RecordBatch]) -> StagedPart:
        """Check the rows of this task's partition, and stage those that are fine."""
        number = frame_partition()
        with TemporaryFolder("rows") as folder:
            portions = enumerate(frame_portions(batches))
            files, counts = [], []
            for at, rows in portions:
                files.append(self._write_file(folder, at, rows))
                counts.append(rows.num_rows)
            if not files:
                # The type is part of the load also without rows.
                files, counts = [self._write_file(folder, 0, self.columns.empty_table())], [0]
            item = _combine_items(self._plan_files(files), number)
            job = replace(self.job, attempt=f"-{uuid.uuid4().hex}")
            return StagedPart(stage_item(item, job), tuple(counts))

    def gather(self, parts: Sequence[StagedPart]) -> tuple[StagedLoad, tuple[PassedRows, ...]]:
        """Return what all tasks staged, and the names by which messages call the rows."""
        ordered = sorted(parts, key=lambda part: part.item.item.number) or [self.stage(())]
        if [part.item.item.number for part in ordered] != list(range(len(ordered))):
            raise InternalError(f"{len(ordered)} tasks staged other partitions than 0 to {len(ordered) - 1}")
        files = [item.file for part in ordered for item in part.item.item.files]
        before = accumulate((count for part in ordered for count in part.rows), initial=0)
        names = tuple(
            PassedRows(file, self.type_name, first) for file, first in zip(files, before, strict=False)
        )
        return StagedLoad(self.job, self.schema_hash, tuple(part.item for part in ordered)), names

    def clear(self) -> None:
        """Remove all files."""
        self.job.discard()

    def _write_file(self, folder: Path, number: int, rows: pa.Table) -> PassedRows:
        file = folder / str(number) / file_of(self.key)
        with wrap_temporary_errors():
            file.parent.mkdir(parents=True)
        stored = to_loadable(rows)
        write_rows(file, stored.schema, stored.to_batches())
        return PassedRows(str(file), self.type_name)

    def _plan_files(self, files: Sequence[PassedRows]) -> list[Item]:
        try:
            catalog = self.job.accepted.catalog
            return plan_items(files, catalog, self.mapping, cores=1, patches=self.job.patches)
        except LoadRejected as refused:
            raise InputNames(files).locate_all(refused) from None


def open_row_stage(
    root: Root,
    opened: OpenGraph,
    key: str,
    columns: pa.Schema,
    mapping: InputMapping | None,
    *,
    patches: bool,
) -> RowStage:
    """Return a stage for rows of a type by the accepted schema."""
    schema = opened.schema()
    scratch = f"{root.layout.staging.name}/{new_id()}"
    ids = LoadIds(root.clock() // 1000)
    job = LoadJob(root.uri, schema.accepted, ids, scratch, REPORT_LIMIT, patches=patches)
    return RowStage(job, schema.hash, key, columns, mapping)


def _combine_items(items: Sequence[Item], partition: int) -> Item:
    """The files of a task as one item; names are unique, because paths of other machines may be equal."""
    name = uuid.uuid4().hex
    files = [
        replace(item, file=f"{name}-{at}", file_number=partition * FILES_IN_GROUP + at)
        for at, item in enumerate(items)
    ]
    size = sum(item.size for item in files)
    return replace(files[0], number=partition, size=size, following=tuple(files[1:]))
