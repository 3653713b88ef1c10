"""Loads: all types and files in one commit, or nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Protocol

from omnigraph.engine.commit.protocol import Receipt
from omnigraph.engine.constraints.faults import MEND
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.schema_files import LiveSchema
from omnigraph.engine.load.large_load import LargeLoad
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.passed_rows import InputNames
from omnigraph.engine.load.rejected_records import RecordFinder
from omnigraph.engine.load.request import EngineReport, LoadRequest, LoadResult, StageReport
from omnigraph.engine.load.small_load import SmallLoad
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.plan import plan_items
from omnigraph.engine.rows.ids import LoadIds
from omnigraph.engine.rows.rejects import VIOLATIONS_TOLD, RejectsFile, open_rejects_file
from omnigraph.engine.rows.split_reader import LoadReader
from omnigraph.engine.rows.violations import Violation
from omnigraph.engine.tasks.engines import ChooseEngine, Engine
from omnigraph.engine.tasks.runner import LocalRunner
from omnigraph.engine.write.new_branch import create_branch_for_write
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction, begin, write
from omnigraph.errors import KeyConflict, LoadRejected

IN_MEMORY = 64 * 2**20
"""Up to so many bytes of input are checked in memory, and no file is written before."""

_WHOLE = 1 << 62


class LoadStrategy(Protocol):
    """The rows of a load, read by one schema; they can be checked against any state of the branch."""

    reports: list[StageReport]

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
) -> LoadResult:
    """Load files on a branch; in this process unless another engine is chosen.

    A branch that is missing is made from `from_`, once the load is known to be right there.
    """
    graph.permissions.require("change", branch=author.branch, actor=author.actor)
    paths = [os.fspath(name) for name in request.inputs]
    local = [Path(name) for name in paths if not name.startswith("s3://")]
    with open_rejects_file(request.rejects, local) as rejects, ExitStack() as open_loads:
        work = _Load(graph, request, author, engine, rejects, open_loads)
        try:
            done = work.run(from_)
        except (LoadRejected, KeyConflict) as refused:
            if rejects is not None:
                work.keep_rejects(otherwise=refused.violations)
                rejects.keep("the load was refused, and")
            raise work.names.locate_all(refused) from None
        if rejects is not None:
            rejects.keep()
    return done


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
    ) -> None:
        self.graph = graph
        self.request = request
        self.author = author
        self.choose = engine
        self.rejects = rejects
        self.open_loads = open_loads
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
        seen = [(first.schema, self._read(first.schema))]
        ready: list[tuple[LiveSchema, str | None, Mapping[str, TableEntry], PreparedWrite]] = []

        def prepare(transaction: Transaction) -> PreparedWrite:
            # Versions alone are not enough: a recreated branch starts counting them again.
            on = transaction.schema, transaction.base.head, transaction.base.entries
            if ready and ready[-1][:3] == on:
                # A new branch has the very tables of its source, and the load was checked on these.
                return ready[-1][3]
            if seen[-1][0] != transaction.schema:
                seen.append((transaction.schema, self._read(transaction.schema)))
            ready.append((*on, seen[-1][1].prepare(transaction)))
            self.keep_rejects()
            return ready[-1][3]

        if source is None:
            making: AbstractContextManager[bool] = nullcontext(False)
        else:
            # Checked on what the branch begins with: one that is refused makes no branch.
            prepare(first)
            making = create_branch_for_write(graph, author.branch, source, author.actor)
        with making as created:
            receipt = write(graph, author, prepare)
        return replace(self._result(seen[-1][1], receipt), branch_created=created)

    def _read(self, schema: LiveSchema) -> LoadStrategy:
        request, self.loading = self.request, None
        # Whole files first: how many bytes there are decides who reads them, and in which parts.
        whole = plan_items(request.inputs, schema.catalog, request.mapping, cores=1, split=_WHOLE)
        self.items = whole
        self.loading = loading = self._loading(schema, whole)
        self.open_loads.enter_context(closing(loading))
        if loading.row_violation_counts and not request.skip_bad:
            rejected, counts = (
                tuple(islice(loading.row_violations(), VIOLATIONS_TOLD)),
                loading.row_violation_counts,
            )
            raise LoadRejected(rejected, total=counts.total(), counts=counts, remedy=MEND)
        return loading

    def _loading(self, schema: LiveSchema, whole: Sequence[Item]) -> LoadStrategy:
        request = self.request
        size = sum(item.size for item in whole)
        engine = self.choose(size) if self.choose is not None else None
        if engine is None and size <= IN_MEMORY:
            self.report = EngineReport("local", f"{size} bytes of input fit into memory")
            return SmallLoad(
                LoadReader(schema.accepted, self.ids),
                whole,
                request.mode,
                skip_bad=request.skip_bad,
                report_limit=VIOLATIONS_TOLD if request.rejects is None else None,
            )
        engine = engine or Engine(LocalRunner(), f"{size} bytes of input, and no other engine")
        self.report = EngineReport(engine.runner.name, engine.why)
        items = plan_items(request.inputs, schema.catalog, request.mapping, cores=engine.runner.cores)
        scratch = f"{self.graph.root.layout.staging.name}/{self.graph.root.new_id()}"
        job = LoadJob(
            self.graph.root.uri,
            schema.accepted,
            self.ids,
            scratch,
            VIOLATIONS_TOLD,
            skips_bad=request.skip_bad,
            keeps_all=request.rejects is not None,
        )
        return LargeLoad(job, engine.runner, items, request.mode, skip_bad=request.skip_bad)

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

    def _result(self, loading: LoadStrategy, receipt: Receipt | None) -> LoadResult:
        reported = chain(loading.row_violations(), loading.skipped_violations())
        counts = loading.row_violation_counts + loading.skipped_counts
        return LoadResult(
            nodes=_of_kind("node", loading.counts()),
            edges=_of_kind("edge", loading.counts()),
            commit=receipt.commit if receipt else None,
            skipped=tuple(map(self.names.locate, islice(reported, VIOLATIONS_TOLD))),
            skipped_counts=dict(counts),
            engine=replace(self.report, stages=tuple(loading.reports)),
            pending_indexes=receipt.indexes.pending if receipt else {},
        )


def _of_kind(kind: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {split_key(key)[1]: rows for key, rows in counts.items() if split_key(key)[0] == kind}
