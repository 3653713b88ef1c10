"""A graph behind a server: the methods, results and errors of a local one."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

import pyarrow as pa

from omnigraph.arguments import check_arguments, check_function_arguments
from omnigraph.client import changes, reads, writes
from omnigraph.client.compare import RemoteChangeFeed, RemoteDiff, name_moment
from omnigraph.client.exports import Baseline, write_baseline
from omnigraph.client.feed_pages import FeedPages
from omnigraph.client.history import RemoteBranches, RemoteCommits, RemoteTags
from omnigraph.client.loads import RemoteLoadOptions, prepare_load, send_load
from omnigraph.client.results import ChunkReader
from omnigraph.client.served_options import refuse_actor, refuse_engine
from omnigraph.client.snapshot import RemoteSnapshot, snapshot_of
from omnigraph.client.statements import WriteOptions, author_of
from omnigraph.client.transport import DEFAULT_TIMEOUT, Address, Transport, close_stream
from omnigraph.client.write_block import RemoteWriteBlock
from omnigraph.engine.changes import DEFAULT_CHANGES, DEFAULT_ENTRIES
from omnigraph.engine.changes.entity_history import EntityHistory
from omnigraph.engine.changes.log import LogEntry
from omnigraph.engine.changes.page import ChangePage
from omnigraph.engine.export.export_request import BinaryStream, ExportFormatName, ExportOutput, ExportResult
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.load.request import LoadResult
from omnigraph.engine.merge.merge import MergeOptions
from omnigraph.engine.merge.replay import ReplayOptions
from omnigraph.engine.merge.resolutions import ResolutionsInput
from omnigraph.engine.merge.result import MergePreview, MergeResult
from omnigraph.engine.schema_apply.apply import SchemaResult
from omnigraph.engine.tasks.runner import EngineName
from omnigraph.engine.write.mutate import MutationResult
from omnigraph.foreign_names import GraphNames
from omnigraph.graph import GranularityName, LoadMode, MergeStrategy
from omnigraph.history import CommitDetails, GraphStatus, build_status
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source
from omnigraph.query.request import Explanation
from omnigraph.query.result import Result
from omnigraph.snapshot import QueryEngine


@check_function_arguments
def connect(url: str, *, token: str | None = None, timeout: float | None = DEFAULT_TIMEOUT) -> RemoteGraph:
    """Return the graph that a server has at an address such as `http://localhost:8080/graphs/default`.

    `token` is the bearer token of the caller. A call fails when no byte of its answer comes for `timeout`
    seconds; None waits for ever. Nothing is sent before the first call.
    """
    return RemoteGraph(Address.parse(url, token, timeout))


@check_arguments
class RemoteGraph(GraphNames):
    """A graph behind a server; safe to share between threads, and a context manager that closes it.

    Methods, results and errors are those of `Graph`. What works on the storage itself is missing: `embed`,
    `algorithms`, `draw`, `spark` and maintenance. Reads that got no answer are sent again; writes never are.
    """

    def __init__(self, address: Address) -> None:
        self._transport = Transport(address)

    @property
    def uri(self) -> str:
        """The address of the graph."""
        return self._transport.address.url

    @property
    def read_only(self) -> bool:
        """False: the server decides what the caller may write."""
        return False

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._transport.closed

    @property
    def format_version(self) -> int:
        """The number of the form in which the graph is stored."""
        return self._transport.send(reads.take_snapshot({})).format_version

    @property
    def schema(self) -> Catalog:
        """The accepted schema: types, properties and constraints."""
        return compile_schema(Source(self.schema_source))

    @property
    def schema_source(self) -> str:
        """The accepted schema as its author wrote it."""
        return self._transport.send(reads.get_schema())

    def apply_schema(
        self,
        schema: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
    ) -> SchemaResult:
        """Change to another schema, in one commit that carries all rows over, or not at all."""
        call = writes.apply_schema(schema, allow_data_loss=allow_data_loss, actor=actor, message=message)
        return self._transport.send(call)

    @property
    def branches(self) -> RemoteBranches:
        """The branches: create, list, delete, iterate, test with `in`."""
        return RemoteBranches(self._transport)

    @property
    def tags(self) -> RemoteTags:
        """The tags: names of commits; create, list, delete, iterate, test with `in`."""
        return RemoteTags(self._transport)

    @property
    def commits(self) -> RemoteCommits:
        """The commits: list, look up, find where two histories parted."""
        return RemoteCommits(self._transport)

    def log(
        self,
        branch: str = MAIN,
        *,
        all_branches: bool = False,
        actor: str | None = None,
        limit: int | None = DEFAULT_ENTRIES,
        stat: bool = True,
    ) -> list[LogEntry]:
        """The newest commits, each with how many entities of each type it changed; see `Graph.log`."""
        return self.commits.log(branch, all_branches=all_branches, actor=actor, limit=limit, stat=stat)

    def history(
        self, type_name: str, id: str, *, branch: str = MAIN, limit: int | None = DEFAULT_ENTRIES
    ) -> EntityHistory:
        """The commits of a branch that changed one entity, newest first; see `Graph.history`."""
        return self._transport.send(reads.read_history(type_name, id, branch, limit))

    def show(self, commit: str | Commit) -> CommitDetails[RemoteDiff]:
        """A commit, on whatever branch it is, and what it changed against its first parent."""
        found = self.commits.get(commit.id if isinstance(commit, Commit) else commit)
        return CommitDetails(found, None if found.parent is None else self.diff(found.parent, found))

    def status(self, branch: str = MAIN) -> GraphStatus:
        """A branch at a glance: its newest commit, its rows, and how other branches stand beside main."""
        histories = {name: self.commits.list(name) for name in {*self.branches.list(), branch}}
        rows = {key: table.rows for key, table in self.snapshot(branch).tables.items()}
        return build_status(self.uri, rows, branch, histories)

    def snapshot(self, branch: str = MAIN) -> RemoteSnapshot:
        """A branch as it is now; later changes do not reach it."""
        return self._pin({"branch": branch})

    def at(
        self,
        *,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
        branch: str | None = None,
    ) -> RemoteSnapshot:
        """The graph as it was: at a commit, or at a version or a time of a branch; see `Graph.at`."""
        moment: reads.MomentOptions = {"branch": branch, "commit": commit, "version": version, "time": time}
        return snapshot_of(self._transport.send(reads.take_past_snapshot(moment)), self._transport)

    def query(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
        max_rows: int | None = None,
        timeout: float | None = None,
        engine: QueryEngine = "local",
    ) -> Result:
        """Run a read query on a branch as it is now, or on the graph as it was; see `Graph.query`."""
        options: reads.QueryOptions = {
            "engine": engine,
            "name": name,
            "branch": branch,
            "commit": commit,
            "version": version,
            "time": time,
            "max_rows": max_rows,
            "timeout": timeout,
        }
        return self._transport.send(reads.run_query(query, params, options))

    def stream(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
        max_rows: int | None = None,
        timeout: float | None = None,
    ) -> pa.RecordBatchReader:
        """Like `query`, as a reader of Arrow batches: a large result is never in memory at once."""
        options: reads.QueryOptions = {
            "name": name,
            "branch": branch,
            "commit": commit,
            "version": version,
            "time": time,
            "max_rows": max_rows,
            "timeout": timeout,
        }
        call = reads.stream_query(query, params, options)
        opened = self._transport.stream(call)
        response = opened.__enter__()
        chunks = ChunkReader(self._transport.chunks(call, response), lambda: close_stream(opened))
        return pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(chunks), mode="r"))

    def explain(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
    ) -> Explanation:
        """Run a read query and return its steps, each with its rows and milliseconds."""
        options: reads.QueryOptions = {
            "name": name,
            "branch": branch,
            "commit": commit,
            "version": version,
            "time": time,
        }
        return self._transport.send(reads.explain_query(query, params, options))

    def invoke(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> Result:
        """Run a query that the server stores, which reads."""
        return self._transport.send(reads.invoke_read(name, params, branch, snapshot))

    def invoke_mutation(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        if_commit: str | None = None,
        message: str | None = None,
    ) -> MutationResult:
        """Run a query that the server stores, which writes."""
        return self._transport.send(writes.invoke_mutation(name, params, branch, if_commit, message))

    def stored_queries(self) -> list[dict[str, Any]]:
        """The queries that the server stores, with their parameters, by name."""
        return self._transport.send(reads.list_stored_queries())

    def mutate(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        actor: str | None = None,
        name: str | None = None,
        if_commit: str | None = None,
        retry: int = 0,
        message: str | None = None,
    ) -> MutationResult:
        """Carry out a mutation query on a branch: all of it, or nothing; see `Graph.mutate`."""
        options: writes.MutateOptions = {
            "branch": branch,
            "actor": actor,
            "name": name,
            "if_commit": if_commit,
            "retry": retry,
            "message": message,
        }
        return self._transport.send(writes.run_mutation(query, params, options))

    def write(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        if_commit: str | None = None,
        retry: int = 0,
        message: str | None = None,
    ) -> RemoteWriteBlock:
        """A block that collects changes and commits them once: `with graph.write() as tx: ...`.

        `if_commit`, `retry` and `message` are those of `mutate`.
        """
        self._transport.require_open()
        options: WriteOptions = {"actor": actor, "if_commit": if_commit, "retry": retry, "message": message}
        return RemoteWriteBlock(self._transport, author_of(branch, options))

    def load(
        self,
        data: Any,
        *,
        mode: LoadMode,
        type: str | None = None,
        branch: str = MAIN,
        from_: str | None = None,
        actor: str | None = None,
        mapping: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        engine: EngineName = "auto",
        skip_bad: bool = False,
        rejects: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        retry: int = 0,
        message: str | None = None,
    ) -> LoadResult:
        """Load files, or rows of one type, on a branch: all of them, in one commit, or nothing.

        Rows are a list of dictionaries, an Arrow table or stream, or a DataFrame of pandas or polars; they
        travel as Arrow. Files travel as they are, in all formats of `Graph.load` but Lance. Wrong records
        come back, and are written to the file `rejects` on this machine.
        """
        self._transport.require_open()
        options: RemoteLoadOptions = {
            "type": type,
            "branch": branch,
            "from_": from_,
            "actor": actor,
            "mapping": mapping,
            "engine": engine,
            "skip_bad": skip_bad,
            "rejects": rejects,
            "dry_run": dry_run,
            "retry": retry,
            "message": message,
        }
        with ExitStack() as kept:
            return send_load(self._transport, prepare_load(data, mode, options, kept))

    @overload
    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        dry_run: Literal[False] = ...,
        actor: str | None = ...,
        strategy: MergeStrategy | Mapping[str, MergeStrategy] | list[str] | None = ...,
        resolutions: ResolutionsInput | None = ...,
        granularity: GranularityName | None = ...,
        delete_branch: bool = ...,
        message: str | None = ...,
        engine: EngineName = ...,
    ) -> MergeResult: ...

    @overload
    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        dry_run: Literal[True],
        actor: str | None = ...,
        strategy: MergeStrategy | Mapping[str, MergeStrategy] | list[str] | None = ...,
        resolutions: ResolutionsInput | None = ...,
        granularity: GranularityName | None = ...,
        delete_branch: bool = ...,
        message: str | None = ...,
        engine: EngineName = ...,
    ) -> MergePreview: ...

    def merge(
        self,
        source: str,
        into: str = MAIN,
        *,
        actor: str | None = None,
        dry_run: bool = False,
        strategy: MergeStrategy | Mapping[str, MergeStrategy] | list[str] | None = None,
        resolutions: ResolutionsInput | None = None,
        granularity: GranularityName | None = None,
        delete_branch: bool = False,
        message: str | None = None,
        engine: EngineName = "auto",
    ) -> MergeResult | MergePreview:
        """Take what a branch changed into another one, in one commit, or nothing; see `Graph.merge`."""
        how: MergeOptions = {
            "actor": actor,
            "strategy": strategy,
            "resolutions": resolutions,
            "granularity": granularity,
            "delete_branch": delete_branch,
            "message": message,
            "engine": engine,
        }
        if dry_run:
            return self._transport.send(writes.preview_merge(source, into, how))
        return self._transport.send(writes.merge_branches(source, into, how))

    def revert(self, commit: str | Commit, branch: str = MAIN, **how: Unpack[ReplayOptions]) -> MergeResult:
        """Take back what a commit changed, in a new commit; see `Graph.revert`."""
        return self._transport.send(writes.replay("revert", commit, branch, how))

    def cherry_pick(
        self, commit: str | Commit, branch: str = MAIN, **how: Unpack[ReplayOptions]
    ) -> MergeResult:
        """Take in what one commit changed, in a new commit; see `Graph.cherry_pick`."""
        return self._transport.send(writes.replay("cherry-pick", commit, branch, how))

    def reset(
        self,
        to: str | Commit,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        engine: EngineName = "auto",
    ) -> MergeResult:
        """Give a branch the content of an older commit, in a new commit; see `Graph.reset`."""
        refuse_actor(actor)
        refuse_engine(engine)
        return self._transport.send(writes.reset(to, branch, message))

    def diff(
        self,
        a: str | RemoteSnapshot | Commit | datetime,
        b: str | RemoteSnapshot | Commit | datetime,
        *,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
        engine: EngineName = "auto",
    ) -> RemoteDiff:
        """The changes that lead from one moment to another; see `Graph.diff`."""
        wanted: changes.DiffOptions = {"types": types, "kinds": kinds, "ops": ops, "engine": engine}
        summary = self._transport.send(changes.compare(name_moment(a), name_moment(b), wanted))
        return RemoteDiff(self._transport, summary, wanted)

    def changes(
        self,
        branch: str = MAIN,
        *,
        since: str | None = None,
        limit: int | None = None,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> RemoteChangeFeed:
        """The commits of a branch that changed something, oldest first; see `Graph.changes`."""
        wanted: changes.ChangeFilterOptions = {"types": types, "kinds": kinds, "ops": ops}
        return RemoteChangeFeed(self._transport, FeedPages(branch, since, limit, wanted))

    def change_page(
        self,
        branch: str = MAIN,
        *,
        since: str | None = None,
        page_token: str | None = None,
        limit: int = DEFAULT_CHANGES,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> ChangePage:
        """Like `changes`, in pages: at most `limit` changes in one, and a token for the next."""
        options: changes.ChangePageOptions = {
            "page_token": page_token,
            "limit": limit,
            "types": types,
            "kinds": kinds,
            "ops": ops,
        }
        return self._transport.send(changes.read_feed_page(branch, since, options))

    def export(
        self,
        output: ExportOutput,
        *,
        format: ExportFormatName = "ndjson",
        types: Iterable[str] | None = None,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
        overwrite: bool = False,
        engine: EngineName = "local",
    ) -> ExportResult:
        """Write a branch as it is now, or the graph as it was, to a file of NDJSON or a stream."""
        refuse_engine(engine)
        pinned = self._pin({"branch": branch, "commit": commit, "version": version, "time": time})
        return pinned.export(output, format=format, types=types, overwrite=overwrite)

    def baseline(
        self,
        output: BinaryStream,
        branch: str = MAIN,
        *,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> Baseline:
        """Write all entities of a branch as NDJSON, and return the cursor for the changes after them."""
        return write_baseline(self._transport, branch, {"types": types, "kinds": kinds, "ops": ops}, output)

    def refresh(self) -> None:
        """Do nothing: a server always shows the newest state."""
        self._transport.require_open()

    def close(self) -> None:
        """Close the connections; using the graph afterwards raises `GraphClosed`."""
        self._transport.close()

    def __enter__(self) -> Self:
        self._transport.require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteGraph '{self.uri}'{' closed' if self.closed else ''}>"

    def _pin(self, moment: reads.MomentOptions) -> RemoteSnapshot:
        return snapshot_of(self._transport.send(reads.take_snapshot(moment)), self._transport)
