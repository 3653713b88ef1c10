"""A graph at one moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from omnigraph.arguments import check_arguments
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtCommit, AtTime, AtVersion, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot as EngineSnapshot
from omnigraph.engine.graph.snapshot_tables import read_rows
from omnigraph.engine.graph.tags import looks_like_commit
from omnigraph.engine.graph.targets import is_branch, resolve_snapshot, to_microseconds
from omnigraph.errors import BadRequest, BranchNotFound, CommitNotFound, InvalidName, InvalidValue, NotFound
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.progress import ProgressListener, progress_to
from omnigraph.query.query_service import QueryService, ReadQuery, choose_engine
from omnigraph.query.reader import PinnedTarget
from omnigraph.query.request import Limits
from omnigraph.query.result import Result

if TYPE_CHECKING:
    from omnigraph.engine.export.export_request import (
        ExportFormat,
        ExportFormatName,
        ExportOutput,
        ExportResult,
    )
    from omnigraph.engine.rows.blobs import Blob
    from omnigraph.engine.tasks.runner import EngineName
    from omnigraph.query.arrow_tables import EntityDataset
    from omnigraph.query.sql import SqlParams


QueryEngine = Literal["auto", "local", "spark"]
"""What runs a query: this process, or Spark."""


@dataclass(frozen=True, slots=True)
class TableInfo:
    """The table of a type as a snapshot shows it."""

    version: int
    rows: int | None
    """How many entities it has; None when the graph does not say."""
    branch: str
    """The branch that wrote this version."""
    path: str
    """Where it is below the graph."""


@check_arguments
@dataclass(frozen=True, repr=False)
class Snapshot:
    """A graph at one moment; it never changes."""

    id: str
    """The id of the newest commit it shows, or a name made of branch and version when there is none."""
    branch: str
    version: int
    """The version of the branch that it shows."""
    commit: Commit | None
    """The newest commit it shows."""
    tables: Mapping[str, TableInfo] = field(hash=False)
    """The table of each type, by `node:Name` or `edge:Name`."""
    _queries: QueryService = field(compare=False)
    _pinned: EngineSnapshot = field(compare=False)

    @cached_property
    def schema(self) -> Catalog:
        """The schema that held at that moment."""
        return self._queries.opened().catalog_at(self._pinned)

    def query(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        max_rows: int | None = None,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
        engine: QueryEngine = "local",
    ) -> Result:
        """Run a read query on this moment of the graph; see `Graph.query`."""
        target = AtVersion(self.branch, self.version)
        question = ReadQuery(query, params, name, Limits.of(max_rows, timeout, cancel))
        return self._queries.answer(PinnedTarget(target, self._pinned), question, choose_engine(engine))

    def rows(
        self, type_name: str, *, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> pa.Table:
        """The nodes or edges of a type as an Arrow table, in no promised order.

        An edge has its ends as `src` and `dst`. Blobs are left out.
        """
        if limit is not None and limit < 0:
            raise InvalidValue(f"limit must not be negative, got {limit}")
        return read_rows(self._queries.opened(), self._pinned, type_name, columns, limit)

    def sql(
        self,
        statement: str,
        params: SqlParams | None = None,
        *,
        max_rows: int | None = None,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> Result:
        """Run a SELECT on this moment of the graph; see `Graph.sql`."""
        from omnigraph.query.sql import SqlStatement, run_sql

        pinned = PinnedTarget(AtVersion(self.branch, self.version), self._pinned)
        return run_sql(
            self._queries, pinned, SqlStatement(statement, params, Limits.of(max_rows, timeout, cancel))
        )

    def arrow(self, type_name: str) -> EntityDataset:
        """The nodes or edges of a type as a `pyarrow.dataset.Dataset`; see `Graph.arrow`."""
        from omnigraph.query.arrow_tables import EntityDataset

        return EntityDataset(self._queries.opened, self._pinned, type_name)

    def blob(
        self, type_name: str, id: str, property_name: str, *, entity: Literal["node", "edge"] = "node"
    ) -> Blob:
        """One Blob: its size and etag, and its bytes when they are asked for, as in `.read()`."""
        from omnigraph.engine.rows.blobs import find_blob

        return find_blob(self._queries.opened(), self._pinned, entity, type_name, id, property_name)

    def export(
        self,
        output: ExportOutput,
        *,
        format: ExportFormatName = "ndjson",
        types: Iterable[str] | None = None,
        overwrite: bool = False,
        engine: EngineName = "local",
        progress: ProgressListener | None = None,
    ) -> ExportResult:
        """Write all types, or those named, each ordered by id; loading the NDJSON gives an equal graph.

        `output` is a file that ends with `.ndjson`, `.jsonl` or `.gz`, a folder with a file for each type, or
        a binary stream; all other formats need a folder. A file or folder appears complete or not at all,
        and one that exists is refused unless `overwrite` is set. With `engine="spark"` tasks write parts, so
        that a folder has several files for each type. `progress` hears how far it is.
        """
        from omnigraph.engine.export.export_request import ExportRequest
        from omnigraph.engine.export.exporter import export as run_export
        from omnigraph.engine.tasks.runner import select_engine

        chosen = None if types is None else tuple(types)
        by = None if engine == "local" else partial(select_engine, engine, 0)
        request = ExportRequest(output, _format(format), chosen, overwrite, by)
        with progress_to(progress):
            return run_export(self._queries.opened(), self._pinned, request)

    def __repr__(self) -> str:
        return f"<Snapshot {self.id} of '{self.branch}' at version {self.version}, {len(self.tables)} tables>"

    def _repr_html_(self) -> str:
        from omnigraph.notebook.overview import snapshot_page

        return snapshot_page(self._pinned)


def resolve_moment(graph: OpenGraph, named: object) -> EngineSnapshot:
    """Pin the moment that a snapshot, a commit, a time of main or a text names."""
    match named:
        case Snapshot():
            return named._pinned  # noqa: SLF001 - private to both
        case Commit():
            return graph.snapshot(AtCommit(named.id))
        case datetime():
            return graph.snapshot(AtTime(MAIN, to_microseconds(named)))
        case str():
            return resolve_snapshot(graph, named, to_microseconds)
        case _:
            raise InvalidValue(
                f"a moment is a text, a commit, a snapshot or a time, not a {type(named).__name__}",
                remedy="give another value",
            )


def resolve_start(graph: OpenGraph, named: object) -> str | EngineSnapshot:
    """Return where a branch begins: the name of a branch as it is now, or an older moment."""
    if isinstance(named, str) and is_branch(graph, named):
        return named
    try:
        return resolve_moment(graph, named)
    except NotFound as error:
        if isinstance(named, str) and looks_like_commit(named):
            raise CommitNotFound(named) from error
        with suppress(InvalidName):
            raise BranchNotFound(parse_branch_name(str(named))) from error
        raise


def snapshot_of(pinned: EngineSnapshot, questions: QueryService) -> Snapshot:
    """What users see of a moment."""
    tables = {
        key: TableInfo(entry.version, entry.row_count, entry.owner or MAIN, entry.path)
        for key, entry in pinned.entries.items()
    }
    return Snapshot(pinned.id, pinned.branch, pinned.version, pinned.commit, tables, questions, pinned)


def pinned_by(snapshot: Snapshot) -> tuple[OpenGraph, EngineSnapshot]:
    """The open graph and the tables that a snapshot reads; for engines, users have no need of it."""
    return snapshot._queries.opened(), snapshot._pinned  # noqa: SLF001 - the only access to them


def _format(text: str) -> ExportFormat:
    from omnigraph.engine.export.export_request import ExportFormat

    if text not in list(ExportFormat):
        raise BadRequest(
            f"'{text}' is not a format of an export", remedy=f"choose one of: {', '.join(ExportFormat)}"
        )
    return ExportFormat(text)
