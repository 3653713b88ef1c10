"""A graph behind a server for asyncio: the methods, results and errors of `RemoteGraph`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, Unpack, cast, overload

from omnigraph.arguments import check_arguments, check_function_arguments
from omnigraph.client import changes, reads, writes
from omnigraph.client.aio.batches import AsyncBatches
from omnigraph.client.aio.blocking import enter_blocking, run_blocking
from omnigraph.client.aio.compare import AsyncRemoteChangeFeed, AsyncRemoteDiff, open_feed
from omnigraph.client.aio.exports import write_baseline
from omnigraph.client.aio.history import AsyncRemoteBranches, AsyncRemoteCommits, AsyncRemoteTags
from omnigraph.client.aio.loads import send_load
from omnigraph.client.aio.snapshot import AsyncRemoteSnapshot, snapshot_of
from omnigraph.client.aio.transport import AsyncTransport
from omnigraph.client.aio.write_block import AsyncRemoteWriteBlock
from omnigraph.client.calls import Call
from omnigraph.client.changes import ChangeFilterOptions, ChangePageOptions, DiffOptions
from omnigraph.client.compare import name_moment
from omnigraph.client.exports import Baseline
from omnigraph.client.feed_pages import FeedPages
from omnigraph.client.loads import RemoteLoadOptions, prepare_load
from omnigraph.client.reads import LogOptions, MomentOptions, QueryOptions
from omnigraph.client.served_options import refuse_actor, refuse_engine
from omnigraph.client.statements import WriteOptions, author_of
from omnigraph.client.transport import DEFAULT_TIMEOUT, Address
from omnigraph.client.writes import MutateOptions
from omnigraph.engine.changes import DEFAULT_ENTRIES
from omnigraph.engine.changes.entity_history import EntityHistory
from omnigraph.engine.changes.log import LogEntry
from omnigraph.engine.changes.page import ChangePage
from omnigraph.engine.export.export_request import BinaryStream, ExportFormatName, ExportOutput, ExportResult
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.load.request import LoadResult
from omnigraph.engine.merge.merge import MergeOptions
from omnigraph.engine.merge.replay import ReplayOptions
from omnigraph.engine.merge.result import MergePreview, MergeResult
from omnigraph.engine.schema_apply.apply import SchemaResult
from omnigraph.engine.tasks.runner import EngineName
from omnigraph.engine.write.mutate import MutationResult
from omnigraph.graph import LoadMode
from omnigraph.history import CommitDetails, GraphStatus, build_status
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source
from omnigraph.query.request import Explanation
from omnigraph.query.result import Result

Answer = TypeVar("Answer")


@check_function_arguments
def aconnect(
    url: str, *, token: str | None = None, timeout: float | None = DEFAULT_TIMEOUT
) -> AsyncRemoteGraph:
    """Return the graph that a server has, for asyncio; the arguments are those of `connect`.

    Use it as `async with og.aconnect(url) as graph:`. Nothing is sent before the first call.
    """
    return AsyncRemoteGraph(Address.parse(url, token, timeout))


@check_arguments
class AsyncRemoteGraph:
    """A graph behind a server for asyncio: an async context manager that any task of one loop may use.

    Methods, options, results and errors are those of `RemoteGraph`; what asks the server is awaited, and what
    is iterated there is iterated with `async for` here. Cancelling a read stops it on the server, too.
    """

    def __init__(self, address: Address) -> None:
        self._transport = AsyncTransport(address)

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

    async def format_version(self) -> int:
        """Return the number of the form in which the graph is stored."""
        return (await self._send(reads.take_snapshot({}))).format_version

    async def schema(self) -> Catalog:
        """Return the accepted schema: types, properties and constraints."""
        return compile_schema(Source(await self.schema_source()))

    async def schema_source(self) -> str:
        """Return the accepted schema as its author wrote it."""
        return await self._send(reads.get_schema())

    async def apply_schema(
        self,
        schema: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
    ) -> SchemaResult:
        """Change to another schema, in one commit that carries all rows over, or not at all."""
        call = writes.apply_schema(schema, allow_data_loss=allow_data_loss, actor=actor, message=message)
        return await self._send(call)

    @property
    def branches(self) -> AsyncRemoteBranches:
        """The branches: create, list, delete, iterate."""
        return AsyncRemoteBranches(self._transport)

    @property
    def tags(self) -> AsyncRemoteTags:
        """The tags: names of commits; create, list, delete, iterate."""
        return AsyncRemoteTags(self._transport)

    @property
    def commits(self) -> AsyncRemoteCommits:
        """The commits: list, look up, find where two histories parted."""
        return AsyncRemoteCommits(self._transport)

    async def log(self, branch: str = MAIN, **how: Unpack[LogOptions]) -> list[LogEntry]:
        """The newest commits, each with how many entities of each type it changed; see `Graph.log`."""
        return await self.commits.log(branch, **how)

    async def history(
        self, type_name: str, id: str, *, branch: str = MAIN, limit: int | None = DEFAULT_ENTRIES
    ) -> EntityHistory:
        """The commits of a branch that changed one entity, newest first; see `Graph.history`."""
        return await self._send(reads.read_history(type_name, id, branch, limit))

    async def show(self, commit: str | Commit) -> CommitDetails[AsyncRemoteDiff]:
        """A commit, on whatever branch it is, and what it changed against its first parent."""
        found = await self.commits.get(commit.id if isinstance(commit, Commit) else commit)
        if found.parent is None:
            return CommitDetails(found)
        return CommitDetails(found, await self.diff(found.parent, found))

    async def status(self, branch: str = MAIN) -> GraphStatus:
        """A branch at a glance: its newest commit, its rows, and how other branches stand beside main."""
        names = {*(await self.branches.list()), branch}
        histories = {name: await self.commits.list(name) for name in names}
        rows = {key: table.rows for key, table in (await self.snapshot(branch)).tables.items()}
        return build_status(self.uri, rows, branch, histories)

    async def snapshot(self, branch: str = MAIN) -> AsyncRemoteSnapshot:
        """A branch as it is now; later changes do not reach it."""
        return snapshot_of(await self._send(reads.take_snapshot({"branch": branch})), self._transport)

    async def at(self, **moment: Unpack[MomentOptions]) -> AsyncRemoteSnapshot:
        """The graph as it was: at a commit, or at a version or a time of a branch; see `Graph.at`."""
        return snapshot_of(await self._send(reads.take_past_snapshot(moment)), self._transport)

    async def query(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        **options: Unpack[QueryOptions],
    ) -> Result:
        """Run a read query on a branch as it is now, or on the graph as it was; see `Graph.query`."""
        return await self._send(reads.run_query(query, params, options))

    def stream(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        **options: Unpack[QueryOptions],
    ) -> AsyncBatches:
        """Like `query`, as batches of Arrow that arrive: a large result is never in memory at once.

        Use it as `async with graph.stream(query) as batches:`, and iterate with `async for`.
        """
        return AsyncBatches(self._transport, reads.stream_query(query, params, options))

    async def explain(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        **moment: Unpack[MomentOptions],
    ) -> Explanation:
        """Run a read query and return its steps, each with its rows and milliseconds."""
        # A type checker does not see that a moment has no other keys; the call refuses those.
        options = cast(QueryOptions, {**moment, "name": name})
        return await self._send(reads.explain_query(query, params, options))

    async def invoke(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> Result:
        """Run a query that the server stores, which reads."""
        return await self._send(reads.invoke_read(name, params, branch, snapshot))

    async def invoke_mutation(
        self,
        name: str,
        params: Mapping[str, object] | None = None,
        *,
        branch: str = MAIN,
        if_commit: str | None = None,
        message: str | None = None,
    ) -> MutationResult:
        """Run a query that the server stores, which writes."""
        return await self._send(writes.invoke_mutation(name, params, branch, if_commit, message))

    async def stored_queries(self) -> list[dict[str, Any]]:
        """The queries that the server stores, with their parameters, by name."""
        return await self._send(reads.list_stored_queries())

    async def mutate(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        **options: Unpack[MutateOptions],
    ) -> MutationResult:
        """Carry out a mutation query on a branch: all of it, or nothing; see `Graph.mutate`."""
        return await self._send(writes.run_mutation(query, params, options))

    def write(self, branch: str = MAIN, **options: Unpack[WriteOptions]) -> AsyncRemoteWriteBlock:
        """A block that collects changes and commits them once: `async with graph.write() as tx: ...`.

        `if_commit`, `retry` and `message` are those of `mutate`.
        """
        self._transport.require_open()
        return AsyncRemoteWriteBlock(self._transport, author_of(branch, options))

    async def load(self, data: Any, *, mode: LoadMode, **options: Unpack[RemoteLoadOptions]) -> LoadResult:
        """Load files, or rows of one type or several, on a branch; see `RemoteGraph.load`.

        Files are read, and rows turned into Arrow, in a worker thread.
        """
        self._transport.require_open()
        async with enter_blocking(ExitStack()) as kept:
            prepared = await run_blocking(prepare_load, data, mode, options, kept)
            return await send_load(self._transport, prepared)

    @overload
    async def merge(
        self, source: str, into: str = MAIN, *, dry_run: Literal[False] = ..., **how: Unpack[MergeOptions]
    ) -> MergeResult: ...

    @overload
    async def merge(
        self, source: str, into: str = MAIN, *, dry_run: Literal[True], **how: Unpack[MergeOptions]
    ) -> MergePreview: ...

    async def merge(
        self, source: str, into: str = MAIN, *, dry_run: bool = False, **how: Unpack[MergeOptions]
    ) -> MergeResult | MergePreview:
        """Take what a branch changed into another one, in one commit, or nothing; see `Graph.merge`."""
        if dry_run:
            return await self._send(writes.preview_merge(source, into, how))
        return await self._send(writes.merge_branches(source, into, how))

    async def revert(
        self, commit: str | Commit, branch: str = MAIN, **how: Unpack[ReplayOptions]
    ) -> MergeResult:
        """Take back what a commit changed, in a new commit; see `Graph.revert`."""
        return await self._send(writes.replay("revert", commit, branch, how))

    async def cherry_pick(
        self, commit: str | Commit, branch: str = MAIN, **how: Unpack[ReplayOptions]
    ) -> MergeResult:
        """Take in what one commit changed, in a new commit; see `Graph.cherry_pick`."""
        return await self._send(writes.replay("cherry-pick", commit, branch, how))

    async def reset(
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
        return await self._send(writes.reset(to, branch, message))

    async def diff(
        self,
        a: str | AsyncRemoteSnapshot | Commit | datetime,
        b: str | AsyncRemoteSnapshot | Commit | datetime,
        **wanted: Unpack[DiffOptions],
    ) -> AsyncRemoteDiff:
        """The changes that lead from one moment to another; see `Graph.diff`."""
        summary = await self._send(changes.compare(name_moment(a), name_moment(b), wanted))
        return AsyncRemoteDiff(self._transport, summary, wanted)

    async def changes(
        self,
        branch: str = MAIN,
        *,
        since: str | None = None,
        limit: int | None = None,
        **wanted: Unpack[ChangeFilterOptions],
    ) -> AsyncRemoteChangeFeed:
        """The commits of a branch that changed something, oldest first; see `Graph.changes`."""
        return await open_feed(self._transport, FeedPages(branch, since, limit, wanted))

    async def change_page(
        self, branch: str = MAIN, *, since: str | None = None, **options: Unpack[ChangePageOptions]
    ) -> ChangePage:
        """Like `changes`, in pages: at most `limit` changes in one, and a token for the next."""
        return await self._send(changes.read_feed_page(branch, since, options))

    async def export(
        self,
        output: ExportOutput,
        *,
        format: ExportFormatName = "ndjson",
        types: Iterable[str] | None = None,
        overwrite: bool = False,
        engine: EngineName = "local",
        **moment: Unpack[MomentOptions],
    ) -> ExportResult:
        """Write a branch as it is now, or the graph as it was, to a file of NDJSON or a stream."""
        refuse_engine(engine)
        pinned = snapshot_of(await self._send(reads.take_snapshot(moment)), self._transport)
        return await pinned.export(output, format=format, types=types, overwrite=overwrite)

    async def baseline(
        self, output: BinaryStream, branch: str = MAIN, **wanted: Unpack[ChangeFilterOptions]
    ) -> Baseline:
        """Write all entities of a branch as NDJSON, and return the cursor for the changes after them."""
        return await write_baseline(self._transport, branch, wanted, output)

    async def refresh(self) -> None:
        """Do nothing: a server always shows the newest state."""
        self._transport.require_open()

    async def close(self) -> None:
        """Close the connections; using the graph afterwards raises `GraphClosed`."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        self._transport.require_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncRemoteGraph '{self.uri}'{' closed' if self.closed else ''}>"

    async def _send(self, call: Call[Answer]) -> Answer:
        return await self._transport.send(call)
