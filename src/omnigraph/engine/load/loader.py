"""Loads: all types and files in one commit, or nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyarrow import types as kinds

from omnigraph.engine.commit.protocol import Receipt
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.constraints.faults import FIX_RECORDS
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.schema_files import LiveSchema
from omnigraph.engine.load.large_load import LargeLoad
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.request import EngineReport, LoadRequest, LoadResult, StageReport
from omnigraph.engine.load.small_load import SmallLoad
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.item_reader import column_blocks
from omnigraph.engine.load.sources.line_ranges import line_blocks
from omnigraph.engine.load.sources.plan import pack_files, plan_items
from omnigraph.engine.load.spool import InputNames
from omnigraph.engine.load.staging import StagedLoad
from omnigraph.engine.rows.ids import LoadIds
from omnigraph.engine.rows.lines import Limits
from omnigraph.engine.rows.row_builder import LoadReader
from omnigraph.engine.rows.violations import (
    MAX_REPORTED_VIOLATIONS,
    RejectsFile,
    Violation,
    open_rejects_file,
)
from omnigraph.engine.tasks.runner import ChooseEngine, Engine, LocalRunner
from omnigraph.engine.write.new_branch import create_branch_for_write
from omnigraph.engine.write.transaction import (
    Author,
    CommitPresent,
    PreparedWrite,
    Transaction,
    begin,
    commit_write,
)
from omnigraph.errors import KeyConflict, LoadRejected, ReadSetChanged

Record = msgspec.Raw | str
"""JSON as it stands in the file or as a row is written there; a text where a line is no JSON."""

_NOT_UTF8 = "replace"


class RecordFinder:
    """Finds records by their places; quick as long as these are in the order of the files."""

    def __init__(self, files: Iterable[Item]) -> None:
        self._files = {item.file: item for item in files}
        self._open: tuple[str, _Reader] | None = None

    def of(self, violation: Violation) -> Record | None:
        """What a violation is about; None when it is about a stored row or a whole file."""
        item = None if violation.file is None else self._files.get(violation.file)
        if item is None or violation.line is None:
            return None
        number = violation.line
        if violation.row_group is not None:
            number += sum(item.rows[: violation.row_group - 1])
        if self._open is None or self._open[0] != item.file or number < self._open[1].number:
            in_lines = item.format.is_records or item.format.is_csv
            self._open = item.file, _Lines(item) if in_lines else _Rows(item)
        return self._open[1].at(number)


class _Reader(Protocol):
    number: int
    """The last that was asked for."""

    def at(self, number: int) -> Record | None: ...


class _Lines:
    """A file of lines; a record with quoted line ends is returned with all its lines."""

    def __init__(self, item: Item) -> None:
        self.number = 0
        self._read = 0
        self._line = b""
        self._quotes = item.format.is_csv and item.mapping is not None and item.mapping.dialect.multiline
        blocks = (block.data.removesuffix(b"\n") for block in line_blocks(item, Limits()))
        self._lines = (line for data in blocks for line in data.split(b"\n"))

    def at(self, number: int) -> Record | None:
        while self._read < number:
            self._read, self._line = self._read + 1, next(self._lines, b"")
            if self._read == number and self._quotes:
                self._line = self._join_record(self._line)
        self.number = number
        return _json_or_text(self._line)

    def _join_record(self, line: bytes) -> bytes:
        """All lines of a record; one whose quotes do not pair up has refused the whole file before."""
        held, quotes = [line], line.count(b'"')
        while quotes % 2 and (following := next(self._lines, None)) is not None:
            held.append(following)
            quotes += following.count(b'"')
        self._read += len(held) - 1
        return b"\n".join(held)


class _Rows:
    """A file of columns."""

    def __init__(self, item: Item) -> None:
        self.number = 0
        self._before = 0
        self._rows = pa.table({})
        self._blocks: Iterator[pa.RecordBatch] = (block.columns for block in column_blocks(item))

    def at(self, number: int) -> Record | None:
        self.number = number
        while self._before + self._rows.num_rows < number:
            following = next(self._blocks, None)
            if following is None:
                return None
            self._before += self._rows.num_rows
            self._rows = following
        row = self._rows.slice(number - self._before - 1, 1)
        members = {name: _json_value(row.column(name)) for name in row.schema.names}
        return msgspec.Raw(msgspec.json.encode(members, enc_hook=str))


def _json_value(column: pa.Array) -> Any:
    """One value of a column, as JSON can hold it."""
    if kinds.is_dictionary(column.type):
        column = column.dictionary_decode()
    if kinds.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if kinds.is_string(column.type) or kinds.is_large_string(column.type):
        body = column.cast(pa.large_binary())[0].as_py()
        return None if body is None else body.decode(errors=_NOT_UTF8)
    try:
        return column[0].as_py()
    except (UnicodeDecodeError, ValueError, OverflowError):
        # A date beyond those of Python, or a list of texts that are none.
        return f"a value of type {column.type}"


def _json_or_text(line: bytes) -> Record:
    try:
        msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line.rstrip(b"\r").decode(errors=_NOT_UTF8)
    return msgspec.Raw(line.strip())


IN_MEMORY = 64 * 2**20
"""Up to so many bytes of input are checked in memory, and no file is written before."""

PATCH_IN_MEMORY = 8 * 2**20
"""The same for a patch."""

_WHOLE = 1 << 62


class LoadStrategy(Protocol):
    """The rows of a load, read by one schema; they can be checked against any state of the branch."""

    reports: list[StageReport]

    @property
    def nulls(self) -> Mapping[str, int]: ...
    @property
    def row_violation_counts(self) -> Counter[str]: ...
    def row_violations(self) -> Iterator[Violation]: ...
    @property
    def skipped_counts(self) -> Counter[str]: ...
    def skipped_violations(self) -> Iterator[Violation]: ...
    def rejected_violations(self) -> Iterator[Violation]: ...
    def counts(self) -> Mapping[str, int]: ...
    def prepare(self, transaction: Transaction, /) -> PreparedWrite: ...
    def close(self) -> None: ...


def load(
    graph: OpenGraph,
    request: LoadRequest,
    author: Author,
    *,
    from_: str | None = None,
    engine: ChooseEngine | None = None,
    staged: StagedLoad | None = None,
) -> LoadResult:
    """Load files on a branch; in this process unless another engine is chosen.

    A branch that is missing is made from `from_`, once the load is known to be right there. `staged` are rows
    that were read before, instead of files. If the branch has the commit that the author names, the load does
    nothing and returns that commit.
    """
    graph.permissions.require("change", branch=author.branch, actor=author.actor)
    paths = [os.fspath(name) for name in request.inputs]
    local = [Path(name) for name in paths if not name.startswith("s3://")]
    with open_rejects_file(request.rejects, local) as rejects, ExitStack() as open_loads:
        work = _Load(graph, request, author, engine, rejects, open_loads, staged)
        try:
            done = work.run(from_)
        except CommitPresent as present:
            return LoadResult({}, {}, present.commit)
        except (LoadRejected, KeyConflict) as refused:
            if rejects is not None:
                work.keep_rejects(otherwise=refused.violations)
                rejects.keep("the load was refused, and")
            raise work.names.locate_all(refused) from None
        if rejects is not None:
            rejects.keep()
    return done


class _Attempts:
    """A load, read once for each schema and checked once for each state of the branch."""

    def __init__(self, load: _Load, schema: LiveSchema) -> None:
        self._load = load
        self._schema = schema
        self.strategy = load.read(schema)
        self._checked_on: tuple[LiveSchema, str | None, Mapping[str, TableEntry]] | None = None
        self._prepared: PreparedWrite | None = None

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        # Versions alone are not enough: a recreated branch starts counting them again.
        state = transaction.schema, transaction.base.head, transaction.base.entries
        if self._prepared is not None and state == self._checked_on:
            # A new branch has the very tables of its source, and the load was checked on these.
            return self._prepared
        if self._schema != transaction.schema:
            self._schema, self.strategy = transaction.schema, self._load.read(transaction.schema)
        self._prepared, self._checked_on = self.strategy.prepare(transaction), state
        self._load.keep_rejects()
        return self._prepared


class _Load:
    """One load from its inputs to its commit."""

    def __init__(
        self,
        graph: OpenGraph,
        request: LoadRequest,
        author: Author,
        engine: ChooseEngine | None,
        rejects: RejectsFile | None,
        open_loads: ExitStack,
        staged: StagedLoad | None,
    ) -> None:
        self.graph = graph
        self.request = request
        self.author = author
        self.choose = engine
        self.rejects = rejects
        self.open_loads = open_loads
        self.staged = staged
        self.names = InputNames(request.inputs)
        self.ids = LoadIds(graph.root.clock() // 1000)
        self.report = EngineReport("local", "")
        self.items: Sequence[Item] = ()
        self.loading: LoadStrategy | None = None

    def run(self, from_: str | None) -> LoadResult:
        graph, author = self.graph, self.author
        source = None
        if from_ is not None and author.branch not in graph.branch_names():
            source = parse_branch_name(from_)
        first = begin(graph, author if source is None else replace(author, branch=source))
        # Files are read once, and before the branch's lock may be needed: others can write meanwhile.
        attempts = _Attempts(self, first.schema)
        if self.request.dry_run:
            attempts.prepare(first)
            return self._build_result(attempts.strategy, None)
        if source is None:
            making: AbstractContextManager[bool] = nullcontext(False)
        else:
            # Checked on what the branch begins with: one that is refused makes no branch.
            attempts.prepare(first)
            making = create_branch_for_write(graph, author.branch, source, author.actor)
        with making as created:
            receipt = commit_write(graph, author, attempts)
        return replace(self._build_result(attempts.strategy, receipt), branch_created=created)

    def read(self, schema: LiveSchema) -> LoadStrategy:
        """Read the inputs by a schema."""
        request, self.loading = self.request, None
        if self.staged is not None:
            loading = self._reuse_staged(schema, self.staged)
        else:
            # Whole files first: how many bytes there are decides who reads them, and in which parts.
            whole = self._plan_items(schema, cores=1, split=_WHOLE)
            self.items = whole
            loading = self._choose_strategy(schema, whole)
        self.loading = loading
        self.open_loads.enter_context(closing(loading))
        if loading.row_violation_counts and not request.skip_bad:
            rejected, counts = (
                tuple(islice(loading.row_violations(), MAX_REPORTED_VIOLATIONS)),
                loading.row_violation_counts,
            )
            raise LoadRejected(rejected, total=counts.total(), counts=counts, remedy=FIX_RECORDS)
        return loading

    def _reuse_staged(self, schema: LiveSchema, staged: StagedLoad) -> LoadStrategy:
        if staged.schema_hash != schema.hash:
            raise ReadSetChanged("schema", expected=staged.schema_hash, actual=schema.hash)
        self.report = EngineReport("spark", "the rows were staged by tasks")
        request = self.request
        return LargeLoad(staged.job, LocalRunner(), staged.items, request.mode, skip_bad=request.skip_bad)

    def _choose_strategy(self, schema: LiveSchema, whole: Sequence[Item]) -> LoadStrategy:
        request = self.request
        size = sum(item.size for item in whole)
        engine = self.choose(size) if self.choose is not None else None
        # The stored rows that a patch is about are in memory as well, and may be much larger.
        room = PATCH_IN_MEMORY if request.mode is Mode.PATCH else IN_MEMORY
        if engine is None and size <= room:
            self.report = EngineReport("local", f"{size} bytes of input fit into memory")
            return SmallLoad(
                LoadReader(schema.accepted, self.ids, patches=request.mode is Mode.PATCH),
                whole,
                request.mode,
                skip_bad=request.skip_bad,
                report_limit=MAX_REPORTED_VIOLATIONS if request.rejects is None else None,
            )
        engine = engine or Engine(LocalRunner(), f"{size} bytes of input, and no other engine")
        self.report = EngineReport(engine.runner.name, engine.why)
        cores = engine.runner.cores
        items = pack_files(self._plan_items(schema, cores=cores), cores)
        scratch = f"{self.graph.root.layout.staging.name}/{self.graph.root.new_id()}"
        job = LoadJob(
            self.graph.root.uri,
            schema.accepted,
            self.ids,
            scratch,
            MAX_REPORTED_VIOLATIONS,
            skips_bad=request.skip_bad,
            keeps_all=request.rejects is not None,
            patches=request.mode is Mode.PATCH,
        )
        return LargeLoad(job, engine.runner, items, request.mode, skip_bad=request.skip_bad)

    def _plan_items(self, schema: LiveSchema, *, cores: int, split: int | None = None) -> list[Item]:
        request = self.request
        patches = request.mode is Mode.PATCH
        return plan_items(
            request.inputs, schema.catalog, request.mapping, cores=cores, split=split, patches=patches
        )

    def keep_rejects(self, otherwise: Iterable[Violation] = ()) -> None:
        """Write to a file what is wrong with the load, as far as it came; one of its own may be missing."""
        if self.rejects is None:
            return
        loading = self.loading
        found = (
            otherwise
            if loading is None
            else chain(loading.row_violations(), loading.skipped_violations(), loading.rejected_violations())
        )
        record_of = RecordFinder(self.items).of
        self.rejects.write((self.names.locate(one), record_of(one)) for one in found)

    def _build_result(self, loading: LoadStrategy, receipt: Receipt | None) -> LoadResult:
        reported = chain(loading.row_violations(), loading.skipped_violations())
        counts = loading.row_violation_counts + loading.skipped_counts
        return LoadResult(
            nodes=_of_kind("node", loading.counts()),
            edges=_of_kind("edge", loading.counts()),
            commit=receipt.commit if receipt else None,
            skipped=tuple(map(self.names.locate, islice(reported, MAX_REPORTED_VIOLATIONS))),
            skipped_counts=dict(counts),
            null_counts=loading.nulls,
            dialects={
                item.file: ", ".join(item.mapping.dialect.guessed)
                for item in self.items
                if item.mapping is not None and item.mapping.dialect.guessed
            },
            engine=replace(self.report, stages=tuple(loading.reports)),
            pending_indexes=receipt.indexes.pending if receipt else {},
        )


def _of_kind(kind: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {split_key(key)[1]: rows for key, rows in counts.items() if split_key(key)[0] == kind}
