"""The object users hold: one graph, its branches, its commits and its past."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

import pyarrow as pa

from omnigraph.arguments import check_arguments, check_function_arguments, require_whole
from omnigraph.embed.settings import EmbedSettings
from omnigraph.engine.changes import DEFAULT_CHANGES, DEFAULT_ENTRIES
from omnigraph.engine.files.source_files import read_schema
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.format_stamp import read_stamp
from omnigraph.engine.graph.lineage import Commit, require_actor
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph, ReadTarget
from omnigraph.engine.graph.permissions import Permissions
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.targets import parse_past_target, parse_target
from omnigraph.engine.lifecycle.open import open_graph, reopen_graph
from omnigraph.engine.tasks.runner import EngineName, select_engine
from omnigraph.errors import BadRequest, GraphClosed, InvalidValue, OmnigraphError, ReadOnlyGraph
from omnigraph.foreign_names import GraphNames
from omnigraph.graph_maintenance import GraphMaintenance
from omnigraph.lang.schema import MigrationPlan, compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.progress import ProgressListener, progress_to
from omnigraph.query.query_service import QueryService, ReadQuery, choose_engine
from omnigraph.query.read_cache import shared_cache
from omnigraph.query.reader import Reader
from omnigraph.query.request import Limits
from omnigraph.query.result import Result
from omnigraph.sql_reads import SqlReads
from omnigraph.storage.location import Location

if TYPE_CHECKING:
    from omnigraph.engine.changes.diff import Diff
    from omnigraph.engine.changes.entity_history import EntityHistory
    from omnigraph.engine.changes.feed import ChangeFeed
    from omnigraph.engine.changes.log import LogEntry
    from omnigraph.engine.changes.page import ChangePage
    from omnigraph.engine.embedding.result import EmbedOptions, EmbedResult
    from omnigraph.engine.export.export_request import ExportFormatName, ExportOutput, ExportResult
    from omnigraph.engine.load.request import LoadResult
    from omnigraph.engine.merge.merge import MergeOptions
    from omnigraph.engine.merge.replay import Replay, ReplayOptions
    from omnigraph.engine.merge.resolutions import ResolutionsInput
    from omnigraph.engine.merge.result import MergePreview, MergeResult
    from omnigraph.engine.schema_apply.apply import SchemaResult
    from omnigraph.engine.write.builder import WriteBlock
    from omnigraph.engine.write.mutate import MutationResult
    from omnigraph.history import Branches, CommitDetails, Commits, GraphStatus, Tags
    from omnigraph.notebook.draw import DrawInput, DrawOptions
    from omnigraph.notebook.picture import Picture
    from omnigraph.policy.policy import Policy
    from omnigraph.query.algorithms.calls import Algorithms
    from omnigraph.query.request import Explanation
    from omnigraph.snapshot import QueryEngine, Snapshot


__all__ = ["Graph", "init", "open"]

LoadMode = Literal["append", "merge", "patch", "overwrite"]
"""What a load does with rows that are stored already: refuse them, update them, or replace all rows."""
MergeStrategy = Literal["ours", "theirs"]
"""Which version of a contested entity a merge keeps: that of the target (`ours`) or of the source."""
GranularityName = Literal["row", "property"]
"""Whether two changes of one entity always conflict (`row`), or only when they change the same property."""


@check_function_arguments
def init(uri: str | os.PathLike[str], *, schema: str | os.PathLike[str], force: bool = False) -> Graph:
    """Make a graph at an empty place, and open it.

    `uri` is a folder or `s3://bucket/prefix`; `schema` is the text of a schema, or a `Path` to read it
    from. `force` replaces what an initialisation that died left behind; it never touches a graph.
    """
    source = read_schema(schema)
    compile_schema(source)  # here, so that mistakes name the file
    return init_at(Root.at(Location.parse(uri)), source.text, force=force)


def init_at(root: Root, source: str, *, force: bool = False) -> Graph:
    """Make a graph with tools that the caller chose."""
    from omnigraph.engine.lifecycle.create import create_graph

    create_graph(root, source, force=force)
    return Graph(open_graph(root))


@check_function_arguments
def open(  # noqa: A001
    uri: str | os.PathLike[str],
    *,
    read_only: bool = False,
    policy: Policy | None = None,
    actor: str | None = None,
    embedding: EmbedSettings | None = None,
    merge_granularity: GranularityName | None = None,
) -> Graph:
    """Open the graph at a folder or at `s3://bucket/prefix`.

    With `read_only` nothing is ever written, so credentials that only read are enough. `actor` is the author
    of writes that name none. With a `policy` every write is checked first: what the policy does not allow its
    actor fails with `PolicyDenied`. `embedding` is the provider of vectors for texts; without it the
    environment names one. `merge_granularity` counts for merges that name none, on types without `@merge`.
    """
    if actor is not None:
        require_actor(actor)
    opened = open_graph(Root.at(Location.parse(uri)), read_only=read_only)
    opened.permissions, opened.embedding = Permissions(policy, actor), embedding
    opened.merge_granularity = merge_granularity
    return Graph(opened)


def open_at(
    root: Root, *, read_only: bool = False, policy: Policy | None = None, actor: str | None = None
) -> Graph:
    """Open a graph with tools that the caller chose."""
    if actor is not None:
        require_actor(actor)
    opened = open_graph(root, read_only=read_only)
    opened.permissions = Permissions(policy, actor)
    return Graph(opened)


@check_arguments
class Graph(GraphNames, SqlReads, GraphMaintenance):
    """An open graph; safe to share between threads, and a context manager that closes it.

    Reading always shows the newest state: nothing has to be reopened when somebody else writes.
    """

    def __init__(self, opened: OpenGraph) -> None:
        self._opened = opened
        self._closed = False
        self._queries = QueryService(self._reading)

    @property
    def uri(self) -> str:
        """Where the graph is: an absolute path, or `s3://bucket/prefix`."""
        return self._opened.root.uri

    @property
    def read_only(self) -> bool:
        """Whether it was opened for reading only."""
        return self._opened.read_only

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    @property
    def format_version(self) -> int:
        """The number of the form in which the graph is stored."""
        return read_stamp(self._reading().load(MAIN).table)

    @property
    def schema(self) -> Catalog:
        """The accepted schema: types, properties and constraints."""
        return self._reading().schema().catalog

    @property
    def schema_source(self) -> str:
        """The accepted schema as its author wrote it."""
        return self._reading().schema().source

    def plan_schema(self, schema: str | os.PathLike[str], *, allow_data_loss: bool = False) -> MigrationPlan:
        """What changing to another schema would do; a text, or a `Path` to read it from.

        Whether the stored rows fit it, `apply_schema` finds out.
        """
        from omnigraph.engine.schema_apply.apply import SchemaRequest
        from omnigraph.engine.schema_apply.apply import plan_schema as run_plan_schema

        return run_plan_schema(self._reading(), SchemaRequest(read_schema(schema), allow_data_loss))

    def apply_schema(
        self,
        schema: str | os.PathLike[str],
        *,
        allow_data_loss: bool = False,
        actor: str | None = None,
        message: str | None = None,
    ) -> SchemaResult:
        """Change to another schema, in one commit that carries all rows over, or not at all.

        It needs a graph without other branches than main. What is dropped stays readable in older commits,
        unless `allow_data_loss` removes it there as well.
        """
        from omnigraph.engine.schema_apply.apply import SchemaRequest
        from omnigraph.engine.schema_apply.apply import apply_schema as run_apply_schema

        request = SchemaRequest(read_schema(schema), allow_data_loss, actor, message)
        return run_apply_schema(self._writing(), request)

    @property
    def branches(self) -> Branches:
        """The branches: create, list, delete, iterate, test with `in`."""
        from omnigraph.history import Branches

        return Branches(self.uri, self._reading, self._writing)

    @property
    def tags(self) -> Tags:
        """The tags: names of commits; create, list, delete, iterate, test with `in`."""
        from omnigraph.history import Tags

        return Tags(self.uri, self._reading, self._writing)

    @property
    def commits(self) -> Commits:
        """The commits: list, look up, find where two histories parted."""
        from omnigraph.history import Commits

        return Commits(self.uri, self._reading)

    def log(
        self,
        branch: str = MAIN,
        *,
        all_branches: bool = False,
        actor: str | None = None,
        limit: int | None = DEFAULT_ENTRIES,
        stat: bool = True,
    ) -> list[LogEntry]:
        """The newest commits, each with how many entities of each type it changed; see `Commits.log`.

        `branch` may be a tag.
        """
        return self.commits.log(branch, all_branches=all_branches, actor=actor, limit=limit, stat=stat)

    def history(
        self, type_name: str, id: str, *, branch: str = MAIN, limit: int | None = DEFAULT_ENTRIES
    ) -> EntityHistory:
        """The commits of a branch that changed one entity, newest first, and what each changed.

        `type_name` is that of a node or an edge, or `node:Name` and `edge:Name` where both kinds have one;
        `limit=None` reads all of it. Only commits that wrote the table of the type are looked at.
        """
        from omnigraph.engine.changes.entity_history import HistoryRequest, read_entity_history

        if limit is not None and limit < 0:
            raise InvalidValue(f"limit must not be negative, got {limit}")
        request = HistoryRequest(parse_branch_name(branch), type_name, id, limit)
        return read_entity_history(self._reading(), request)

    def show(self, commit: str | Commit) -> CommitDetails[Diff]:
        """A commit, on whatever branch it is, and what it changed against its first parent."""
        from omnigraph.history import CommitDetails

        found = self.commits.get(commit.id if isinstance(commit, Commit) else commit)
        return CommitDetails(found, None if found.parent is None else self.diff(found.parent, found))

    def status(self, branch: str = MAIN) -> GraphStatus:
        """A branch at a glance: its newest commit, its rows, and how other branches stand beside main."""
        from omnigraph.history import read_status

        return read_status(self._reading(), parse_branch_name(branch))

    def snapshot(self, branch: str = MAIN) -> Snapshot:
        """A branch as it is now; later changes do not reach it."""
        return self._pin(AtBranch(parse_branch_name(branch)))

    def at(
        self,
        *,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
        branch: str | None = None,
    ) -> Snapshot:
        """The graph as it was: at a commit, or at a version or a time of a branch (main, if none is named).

        A time is a `datetime` with a zone or a text like `2030-01-31T12:00:00Z`; a text without a zone
        means UTC. It stands for the newest commit that is not later.
        """
        return self._pin(parse_past_target(commit, version, time, branch))

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
        cancel: threading.Event | None = None,
        engine: QueryEngine = "local",
    ) -> Result:
        """Run a read query on a branch as it is now (main, if none is named), or on the graph as it was.

        `query` is a text, or a `Path` to read it from, and `name` says which of several queries is meant.
        `commit`, `version` and `time` are those of `at`. A query with more than `max_rows` rows fails, one
        that takes more than `timeout` seconds, or whose `cancel` event is set, is stopped. `engine` is this
        process or `spark`, with the same result.
        """
        target = parse_target(commit, version, time, branch)
        question = ReadQuery(query, params, name, Limits.of(max_rows, timeout, cancel))
        return self._queries.ask(target, question, choose_engine(engine))

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
        batch_rows: int = 65_536,
        max_rows: int | None = None,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> pa.RecordBatchReader:
        """Like `query`, as a reader of Arrow batches: a large result is never in memory at once."""
        size = min(require_whole("batch_rows", batch_rows, 1), sys.maxsize)
        target = parse_target(commit, version, time, branch)
        question = ReadQuery(query, params, name, Limits.of(max_rows, timeout, cancel))
        return self._queries.ask(target, question, partial(Reader.stream, size=size))

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
        """Run a read query and report what was done: each step with its rows and milliseconds."""
        target = parse_target(commit, version, time, branch)
        return self._queries.ask(target, ReadQuery(query, params, name), Reader.explain)

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
        progress: ProgressListener | None = None,
    ) -> ExportResult:
        """Write a branch as it is now, or the graph as it was, to files; see `Snapshot.export`."""
        pinned = self._pin(parse_target(commit, version, time, branch))
        return pinned.export(
            output, format=format, types=types, overwrite=overwrite, engine=engine, progress=progress
        )

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
        """Carry out a mutation query on a branch: all of it, in one commit, or nothing.

        `query` is a text, or a `Path` to read it from, and `name` says which of several queries is meant.
        With `if_commit` it takes effect only while that commit is the newest of the branch. `retry` says how
        often an update or delete is prepared again when another writer changed a table that it depends on.
        `message` is what the commit says about itself, here and wherever a call makes a commit.
        """
        from omnigraph.engine.write.mutate import MutationSchema, SchemaMoved, mutate
        from omnigraph.engine.write.transaction import Author

        author = Author(parse_branch_name(branch), actor, if_commit, retry, message=message)
        graph = self._writing()
        schema = MutationSchema(graph)
        while True:
            try:
                compiled, values = self._queries.mutation(query, params, name, schema.catalog)
            except OmnigraphError as wrong:
                schema.reread(wrong)
                continue
            try:
                return mutate(graph, compiled, values, author)
            except SchemaMoved as moved:
                schema.follow(moved)

    def write(
        self,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        if_commit: str | None = None,
        retry: int = 0,
        message: str | None = None,
    ) -> WriteBlock:
        """A block that collects changes and commits them once: `with graph.write() as tx: ...`.

        `if_commit`, `retry` and `message` are those of `mutate`.
        """
        from omnigraph.engine.write.builder import WriteBlock
        from omnigraph.engine.write.transaction import Author

        self._writing()
        author = Author(parse_branch_name(branch), actor, if_commit, retry, message=message)
        return WriteBlock(self._writing, author)

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
        progress: ProgressListener | None = None,
    ) -> LoadResult:
        """Load files or rows on a branch: all of them, in one commit, or nothing.

        `data` are paths, folders, patterns such as `data/*.parquet` and `s3://` URIs of NDJSON, Parquet,
        CSV, Arrow and Lance, one or several; or rows of one `type`: dictionaries in a list or an iterator, an
        Arrow table or stream, a frame of pandas, polars (lazy, too) or Spark, a relation of DuckDB; or rows
        and paths of several types, as in `{"Person": people, "Knows": "knows.csv"}`. With `type`, JSON lines
        hold the properties alone. `mapping` says how columns become properties where their names do not. A
        branch that is missing is made from `from_`, if the load is right. `dry_run` checks everything and
        commits nothing.

        With the mode `patch`, rows change the stored rows with their keys, or with their ids, in the
        properties that they have, and `retry` is that of `mutate`.

        `skip_bad` leaves wrong records out instead of refusing the load; either way all of them go to the
        file `rejects`, if one is named. `engine` is `local`, `spark`, or chosen by the size of the input.
        `progress` hears how far it is.
        """
        from omnigraph.engine.constraints.duplicates import Mode, parse_mode
        from omnigraph.engine.load.loader import load as run_load
        from omnigraph.engine.load.request import LoadRequest, require_retry
        from omnigraph.engine.load.sources.mapping import open_mapping
        from omnigraph.engine.load.spool import open_inputs
        from omnigraph.engine.tasks.runner import collect_metrics
        from omnigraph.engine.write.transaction import Author
        from omnigraph.lineage import describe_inputs, record_run

        opened, chosen = self._reading() if dry_run else self._writing(), parse_mode(mode)
        require_retry(chosen, retry)
        how = (None if mapping is None else open_mapping(mapping), engine, self.schema, opened.root)
        with (
            progress_to(progress),
            collect_metrics() as metrics,
            record_run(f"load.{self.uri}", describe_inputs(data)) as lineage,
            open_inputs(data, type, *how, by_record=chosen is Mode.PATCH) as spool,
        ):
            request = LoadRequest(
                spool.files,
                chosen,
                skip_bad,
                None if rejects is None else Path(rejects),
                spool.mapping,
                dry_run,
            )
            author = Author(parse_branch_name(branch), actor, retry=retry, message=message)
            choose = partial(select_engine, engine, at_hand=spool.engine)
            done = run_load(opened, request, author, from_=from_, engine=choose)
            lineage.wrote(self.uri, done.commit.id if done.commit else None, done.nodes, done.edges)
        return done.with_tasks(metrics)

    @overload
    def merge(
        self, source: str, into: str = MAIN, *, dry_run: Literal[False] = ..., **how: Unpack[MergeOptions]
    ) -> MergeResult: ...

    @overload
    def merge(
        self, source: str, into: str = MAIN, *, dry_run: Literal[True], **how: Unpack[MergeOptions]
    ) -> MergePreview: ...

    @overload
    def merge(
        self, source: str, into: str = MAIN, *, dry_run: bool, **how: Unpack[MergeOptions]
    ) -> MergeResult | MergePreview: ...

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
        """Take what a branch changed into another one: all of it, in one commit, or nothing.

        Where the branches contradict each other it fails with `MergeConflicts`, unless `strategy` says whose
        version stands (`ours` is that of `into`), everywhere or by type and property, as in
        `{"Person": "theirs", "Person.age": "ours"}` or `["theirs", "Person.age=ours"]`, or `resolutions`, a
        path or a mapping, decide one by one. With `granularity="property"` two changes of one entity go
        together when they are about different properties; if it is not given, the `@merge` of each type
        counts. `dry_run` only reports what would happen. `delete_branch` deletes the source afterwards.
        `engine` is `local`, `spark`, or chosen by the size of the change.
        """
        from omnigraph.engine.changes.comparison import RunnerChoice
        from omnigraph.engine.merge.choices import parse_granularity, parse_strategies
        from omnigraph.engine.merge.merge import MergeRequest
        from omnigraph.engine.merge.merge import merge as run_merge
        from omnigraph.engine.merge.merge import preview as preview_merge
        from omnigraph.engine.write.transaction import Author

        request = MergeRequest(
            parse_branch_name(source),
            parse_strategies(strategy),
            resolutions,
            parse_granularity(granularity),
            delete_branch,
            RunnerChoice(engine),
        )
        target = parse_branch_name(into)
        if dry_run:
            return preview_merge(self._reading(), request, target)
        return run_merge(self._writing(), request, Author(target, actor, message=message))

    def revert(self, commit: str | Commit, branch: str = MAIN, **how: Unpack[ReplayOptions]) -> MergeResult:
        """Take back what a commit changed, in a new commit; later changes stay.

        What was changed again since conflicts as in a merge: it fails with `MergeConflicts`, unless
        `strategy` says whose version stands (`ours` is that of the branch) or `granularity` is finer.
        """
        from omnigraph.engine.merge.replay import revert

        return self._replay(revert, commit, branch, how)

    def cherry_pick(
        self, commit: str | Commit, branch: str = MAIN, **how: Unpack[ReplayOptions]
    ) -> MergeResult:
        """Take in what one commit changed, in a new commit; the options are those of `revert`."""
        from omnigraph.engine.merge.replay import cherry_pick

        return self._replay(cherry_pick, commit, branch, how)

    def reset(
        self,
        to: str | Snapshot | Commit | datetime,
        branch: str = MAIN,
        *,
        actor: str | None = None,
        message: str | None = None,
        engine: EngineName = "auto",
    ) -> MergeResult:
        """Give a branch the content of an older moment, named as for `diff`, in a new commit."""
        from omnigraph.engine.merge.replay import reset
        from omnigraph.snapshot import resolve_moment

        found = resolve_moment(self._reading(), to).commit
        if found is None:
            raise BadRequest(f"'{to}' has no commit to reset to", remedy="name a commit")
        return self._replay(reset, found, branch, {"actor": actor, "message": message, "engine": engine})

    def _replay(self, run: Replay, commit: str | Commit, branch: str, how: ReplayOptions) -> MergeResult:
        from omnigraph.engine.merge.replay import ReplayChoices
        from omnigraph.engine.write.transaction import Author

        author = Author(parse_branch_name(branch), how.get("actor"), message=how.get("message"))
        found = commit if isinstance(commit, Commit) else self.commits.get(commit)
        return run(self._writing(), found, author, ReplayChoices.of(how))

    def diff(
        self,
        a: str | Snapshot | Commit | datetime,
        b: str | Snapshot | Commit | datetime,
        *,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
        engine: EngineName = "auto",
    ) -> Diff:
        """The changes that lead from one moment to another; iterate it for each, with images of both moments.

        A moment is a snapshot, a commit, a time, or a text: a branch, the id of a commit, a time of main,
        `branch@time` or `branch@v12`. `types` are names of types, `kinds` `node` or `edge`, and `ops`
        `insert`, `update` or `delete`; each keeps only the changes it names, or all when it is not given.
        `engine` is `local`, `spark`, or chosen by the size of the change.
        """
        from omnigraph.engine.changes.change import parse_filter
        from omnigraph.engine.changes.comparison import RunnerChoice
        from omnigraph.engine.changes.diff import Diff
        from omnigraph.snapshot import resolve_moment

        wanted, opened = parse_filter(kinds, types, ops), self._reading()
        before, after = resolve_moment(opened, a), resolve_moment(opened, b)
        return Diff(opened, before, after, wanted, runner_choice=RunnerChoice(engine))

    def changes(
        self,
        branch: str = MAIN,
        *,
        since: str | None = None,
        limit: int | None = None,
        types: str | Iterable[str] | None = None,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> ChangeFeed:
        """The commits of a branch that changed something, oldest first, each with its changes.

        `since` is the `cursor` of an earlier feed with the same filter, `beginning` (also if not given),
        `now`, or `after:` and the id of a commit. `limit` is a number of commits.
        """
        from omnigraph.engine.changes.change import parse_filter
        from omnigraph.engine.changes.feed import BranchHistory, ChangeFeed

        if limit is not None and limit < 1:
            raise InvalidValue(f"limit must be at least 1, got {limit}")
        wanted = parse_filter(kinds, types, ops)
        return ChangeFeed(BranchHistory(self._reading(), parse_branch_name(branch), wanted), since, limit)

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
        from omnigraph.engine.changes.change import parse_filter
        from omnigraph.engine.changes.feed import BranchHistory
        from omnigraph.engine.changes.page import read_feed_page

        wanted = parse_filter(kinds, types, ops)
        history = BranchHistory(self._reading(), parse_branch_name(branch), wanted)
        return read_feed_page(history, since=since, token=page_token, limit=limit)

    def spark(self, session: Any = None) -> Any:
        """The graph as DataFrames of Spark, as in `graph.spark().nodes("Person")`; see its `GraphFrames`."""
        from omnigraph.engine.load.spool import get_frames

        self._reading()
        return get_frames().open_graph(self, self._queries, session)

    def draw(
        self, what: DrawInput, params: Mapping[str, object] | None = None, **how: Unpack[DrawOptions]
    ) -> Picture:
        """A picture of the nodes that a query returns, or of nodes by id, and of the edges between them.

        Nodes are ids, `Type:id` where several types have that id, or ids by type. `hops` adds those up to so
        many edges away, `edges` names the types that count, `label` a property to write at nodes. At most
        `limit` nodes are shown (500), and the picture says when there are more.
        """
        from omnigraph.notebook.draw import DrawRequest, draw

        return draw(self._queries, what, params, DrawRequest(**how))

    def embed(self, branch: str = MAIN, **how: Unpack[EmbedOptions]) -> EmbedResult:
        """Make the `@embed` vectors that are missing or whose text has changed; see `EmbedOptions`.

        They land in commits of up to 50,000 entities; a run that was stopped is simply run again.
        """
        from omnigraph.engine.embedding.fill import embed as run_embed

        opened = self._reading() if how.get("dry_run") else self._writing()
        return run_embed(opened, parse_branch_name(branch), how)

    @property
    def algorithms(self) -> Algorithms:
        """Algorithms over a whole graph, as in `graph.algorithms.pagerank()`; see `Algorithms`."""
        from omnigraph.query.algorithms.calls import Algorithms

        return Algorithms(self._reading, self._writing, self.spark)

    def refresh(self) -> None:
        """Drop everything cached in memory and reopen the graph.

        Unless it is open for reading only, a write whose process died before publishing it becomes visible.
        """
        shared_cache().forget_graph(self.uri)
        self._opened = reopen_graph(self._reading())

    def close(self) -> None:
        """Let go of the graph; using it afterwards raises `GraphClosed`, a second call does nothing."""
        self._closed = True
        self._opened.root.tables.forget()

    def __enter__(self) -> Self:
        self._reading()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self._closed else " read-only" if self.read_only else ""
        return f"<Graph '{self.uri}'{state}>"

    def _repr_html_(self) -> str | None:
        from omnigraph.notebook.overview import graph_page

        return None if self._closed else graph_page(self._opened)

    def _reading(self) -> OpenGraph:
        if self._closed:
            raise GraphClosed(self.uri)
        return self._opened

    def _writing(self) -> OpenGraph:
        opened = self._reading()
        if opened.read_only:
            raise ReadOnlyGraph(self.uri)
        return opened

    def _pin(self, target: ReadTarget) -> Snapshot:
        from omnigraph.snapshot import snapshot_of

        return snapshot_of(self._reading().snapshot(target), self._queries)


def queries_of(graph: Graph) -> QueryService:
    """Return the query service of a graph; for other engines and the server, not for users."""
    return graph._queries  # noqa: SLF001 - this function is how they reach it
