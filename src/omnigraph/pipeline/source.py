"""A graph as DataFrames: each type at a pinned version, read by tasks that open it themselves."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import types as kinds

from omnigraph.engine.changes.change import filter_of
from omnigraph.engine.coordinator import lance_branch
from omnigraph.engine.layout import table_key
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.pinned import open_table
from omnigraph.engine.root import Root, new_id, root_for
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed, StorageFailure
from omnigraph.graph import Commit, Graph, LoadResult, Snapshot
from omnigraph.lang.values import legible
from omnigraph.pipeline.fan_out import fan_out
from omnigraph.pipeline.where import filter_text
from omnigraph.query.ask import Questions
from omnigraph.snapshot import pinned_by
from omnigraph.storage.blobs import is_blob
from omnigraph.storage.fragments import fragments, portions
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.references import Identity
from omnigraph.storage.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.pipeline.algorithms.frames import FrameAlgorithms
    from omnigraph.pipeline.query.read import SparkReads

ROWS_PER_TASK, BLOB_ROWS_PER_TASK = 1_000_000, 10_000
_BATCH_ROWS, _BLOB_BATCH_ROWS = 65_536, 256
_GONE = (Trouble.NOT_FOUND, Trouble.RECLAIMED)

Fragments = tuple[int, ...]


class GraphFrames:
    """What `graph.spark()` gives: the types of a graph and the results of queries as DataFrames of Spark.

    A DataFrame shows the graph as it was when the DataFrame was made, however often it is used.
    """

    def __init__(self, graph: Graph, questions: Questions, spark: SparkSession) -> None:
        self._graph = graph
        self._questions = questions
        self.session = spark

    def nodes(
        self,
        type_name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | Sequence[str] | None = None,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
    ) -> DataFrame:
        """The nodes of a type: `id` and the properties, or the columns named.

        Blobs are left out unless they are named. `where` is a comparison as in a mutation, or several that
        all hold: `age >= 30`. The moment is that of `Graph.at`, a branch as it is now if none is named.
        """
        snapshot = moment(self._graph, branch, commit, version, time)
        return self._frame(table_key("node", type_name), columns, where, snapshot)

    def edges(
        self,
        type_name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | Sequence[str] | None = None,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
    ) -> DataFrame:
        """The edges of a type: `id`, the ends as `src` and `dst`, and the properties; see `nodes`."""
        snapshot = moment(self._graph, branch, commit, version, time)
        return self._frame(table_key("edge", type_name), columns, where, snapshot)

    def query(
        self, query: str | os.PathLike[str], params: Mapping[str, object] | None = None, **how: Any
    ) -> DataFrame:
        """What a read query finds, as a DataFrame; `how` is what `Graph.query` takes, but for limits."""
        return self._questions.answered_by(self.reads.frame, query, params, **how)

    @property
    def reads(self) -> SparkReads:
        """How queries are run on this session."""
        from omnigraph.pipeline.query.read import SparkReads

        return SparkReads(self.session)

    def diff(
        self,
        a: str | Snapshot | Commit | datetime,
        b: str | Snapshot | Commit | datetime,
        type_name: str | None = None,
        *,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> DataFrame:
        """The changes that lead from one moment to another, in any order; moments are those of `Graph.diff`.

        Of one type: `op`, `id`, `changed`, and `before` and `after` with the columns of the type but Blobs.
        Of all types: the same with `kind` and `type`, and `before` and `after` as JSON.
        """
        from omnigraph.pipeline.changes.frames import diff_frame

        wanted = filter_of(kinds, type_name, ops)
        found = self._graph.diff(a, b, types=type_name, kinds=kinds, ops=ops)
        return diff_frame(self.session, found, wanted, type_name and found.key_of(type_name))

    def changes(self, type_name: str, *, branch: str = MAIN, since: str = "beginning") -> DataFrame:
        """What the commits of a branch up to now changed of a type, each change with its commit.

        `since` is that of `Graph.changes`.
        """
        from omnigraph.pipeline.stream import change_scan

        key = key_of(self._graph.snapshot(branch), type_name)
        scan = change_scan(self._graph, branch, key, since)
        steps = [step.commits for step in scan.steps(scan.start(), scan.until)]
        return fan_out(self.session, steps, scan.read, scan.schema)

    def write(self, frame: DataFrame, *, type: str, **how: Any) -> LoadResult:
        """Load the rows of a DataFrame; `how` is what `Graph.load` takes."""
        return self._graph.load(frame, type=type, **how)

    @property
    def algorithms(self) -> FrameAlgorithms:
        """Algorithms over a whole graph, such as `algorithms.pagerank()`, as DataFrames."""
        from omnigraph.pipeline.algorithms.frames import FrameAlgorithms

        return FrameAlgorithms(self._graph, self.session)

    def _frame(
        self,
        key: str,
        columns: Sequence[str] | None,
        where: str | Sequence[str] | None,
        snapshot: Snapshot,
    ) -> DataFrame:
        scan = scan_of(self._graph.uri, snapshot, key, columns, where)
        values = (snapshot.tables[key].rows or 0) * len(scan.schema)
        return fan_out(self.session, scan.pieces(), scan, scan.schema, values)

    def __repr__(self) -> str:
        return f"<GraphFrames of '{self._graph.uri}'>"


def moment(
    graph: Graph,
    branch: str | None,
    commit: str | None,
    version: int | None,
    time: datetime | str | None,
) -> Snapshot:
    """A branch as it is now, unless a past is named."""
    if commit is None and version is None and time is None:
        return graph.snapshot(MAIN if branch is None else branch)
    return graph.at(commit=commit, version=version, time=time, branch=branch)


# --- one type ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """Columns of a type at one version; a task calls it with the fragments that it is to read."""

    uri: str
    key: str
    path: str
    owner: str | None
    version: int
    schema: pa.Schema
    """The columns as Spark takes them."""
    blobs: bool
    branch: str
    """The branch that was read."""
    life: Identity
    """Which of the branches of that name it was."""
    where: str | None = None
    work: str = field(default_factory=new_id)
    """What its tasks have in common."""

    def pieces(self) -> list[Fragments]:
        """The fragments of the table in their order, some for each task."""
        most = BLOB_ROWS_PER_TASK if self.blobs else ROWS_PER_TASK
        return [tuple(one.id for one in some) for some in portions(fragments(self._table()), most)]

    def __call__(self, chosen: Fragments) -> Iterator[pa.RecordBatch]:
        """The rows of some fragments, with the types that they are stored in."""
        try:
            yield from self._table().batches(
                self.schema.names,
                where=self.where,
                batch_size=_BLOB_BATCH_ROWS if self.blobs else _BATCH_ROWS,
                blob_bytes=self.blobs,
                fragments=chosen,
            )
        except StorageFailure as failure:
            raise self._explained(failure) from failure

    def _table(self) -> Table:
        root = root_for(self.uri, self.work)
        try:
            table = root.tables.open(root.layout.table(self.path), self.version, branch=self.owner)
            # Asked last: a branch that is still the same now was the same when the table was opened.
            if self.owner is None or self._life(root) == self.life:
                return table
        except StorageFailure as failure:
            raise self._explained(failure) from failure
        raise HistoricalVersionReclaimed(self.key, self.version)

    def _life(self, root: Root) -> Identity | None:
        return root.forks.identity(root.layout.manifest, lance_branch(self.branch))

    def _explained(self, failure: StorageFailure) -> Exception:
        return HistoricalVersionReclaimed(self.key, self.version) if failure.kind in _GONE else failure


def scan_of(
    uri: str,
    snapshot: Snapshot,
    key: str,
    columns: Sequence[str] | None = None,
    where: str | Sequence[str] | None = None,
) -> Scan:
    """All columns of a type but its Blobs, or those that are named; all rows, or those that pass a test."""
    entry = snapshot.tables.get(key)
    if entry is None:
        raise _no_type(snapshot, key)
    owner = None if entry.branch == MAIN else entry.branch
    opened, pinned = pinned_by(snapshot)
    stored = open_table(opened, pinned, key).schema
    wanted = _chosen(stored, key, columns)
    schema = spark_form(pa.schema([stored.field(name) for name in wanted]))
    blobs = any(is_blob(stored.field(name)) for name in wanted)
    passing = None if where is None else filter_text(snapshot.schema, key, where)
    return Scan(
        uri, key, entry.path, owner, entry.version, schema, blobs, pinned.branch, pinned.life, passing
    )


def key_of(snapshot: Snapshot, type_name: str) -> str:
    """The table of a type by its name, or by `node:Name` and `edge:Name` where both kinds have one."""
    nodes, edges = table_key("node", type_name), table_key("edge", type_name)
    found = [key for key in (type_name, nodes, edges) if key in snapshot.tables]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadRequest(f"'{type_name}' is a node type and an edge type", remedy=f"name {nodes} or {edges}")
    known = ", ".join(key.partition(":")[2] for key in snapshot.tables)
    raise BadRequest(f"there is no type '{type_name}' in snapshot '{snapshot.id}'", remedy=f"it has: {known}")


def _no_type(snapshot: Snapshot, key: str) -> BadRequest:
    kind, _, name = key.partition(":")
    known = [one.partition(":")[2] for one in snapshot.tables if one.startswith(f"{kind}:")]
    remedy = f"it has: {', '.join(known)}" if known else None
    return BadRequest(f"there is no {kind} type '{legible(name)}' in snapshot '{snapshot.id}'", remedy=remedy)


def _chosen(stored: pa.Schema, key: str, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return [column.name for column in stored if not is_blob(column)]
    for name in columns:
        if name not in stored.names:
            raise BadRequest(
                f"'{key.partition(':')[2]}' has no column '{legible(name)}'",
                remedy=f"it has: {', '.join(stored.names)}",
            )
    if not columns:
        raise BadRequest("a DataFrame needs at least one column", remedy="name one, or leave `columns` out")
    return list(columns)


# --- types ---------------------------------------------------------------------------------------


def spark_form(schema: pa.Schema) -> pa.Schema:
    """The columns in types that Spark knows and that hold every value: U32 as a long, U64 as a decimal."""
    return pa.schema(
        [pa.field(column.name, _form(column.type), nullable=column.nullable) for column in schema]
    )


def _form(found: pa.DataType) -> pa.DataType:
    if isinstance(found, pa.BaseExtensionType):
        return pa.binary()
    if kinds.is_uint64(found):
        return pa.decimal128(20, 0)
    if kinds.is_uint32(found):
        return pa.int64()
    if kinds.is_timestamp(found):
        return pa.timestamp("us", found.tz)
    if kinds.is_fixed_size_list(found) or kinds.is_list(found):
        return pa.list_(_form(found.value_type))
    return found
