"""Loads: all types and files in one commit, or nothing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Protocol

from omnigraph.engine.branches import branch_name
from omnigraph.engine.layout import split_key
from omnigraph.engine.lineage import Commit
from omnigraph.engine.load.given import Names
from omnigraph.engine.load.job import LoadJob
from omnigraph.engine.load.large import LargeLoad
from omnigraph.engine.load.records import Records
from omnigraph.engine.load.request import EngineReport, LoadRequest, LoadResult, StageReport
from omnigraph.engine.load.runner import LocalRunner, Runner
from omnigraph.engine.load.small import SmallLoad
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.plan import plan_items
from omnigraph.engine.manifest import Entry
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.schema_files import LiveSchema
from omnigraph.engine.write.faults import MEND
from omnigraph.engine.write.ids import LoadIds
from omnigraph.engine.write.new_branch import new_branch
from omnigraph.engine.write.read import LoadReader
from omnigraph.engine.write.rejects import VIOLATIONS_TOLD, RejectsFile, rejects_file
from omnigraph.engine.write.transaction import Author, Prepared, Transaction, begin, write
from omnigraph.engine.write.violations import Violation
from omnigraph.errors import KeyConflict, LoadRejected

IN_MEMORY = 64 * 2**20
"""Up to so many bytes of input are checked in memory, and no file is written before."""

_WHOLE = 1 << 62


@dataclass(frozen=True, slots=True)
class Engine:
    """Who carries out a load, and why."""

    runner: Runner
    why: str


ChooseEngine = Callable[[int], Engine | None]
"""The engine for so many bytes of input; None means this process."""


class Loading(Protocol):
    """The rows of a load, read by one schema; they can be checked against any state of the branch."""

    reports: list[StageReport]

    @property
    def wrong(self) -> Counter[str]: ...
    def unread(self) -> Iterator[Violation]: ...
    @property
    def left_out(self) -> Counter[str]: ...
    def skipped(self) -> Iterator[Violation]: ...
    def refused(self) -> Iterator[Violation]: ...
    def counts(self) -> Mapping[str, int]: ...
    def prepared(self, transaction: Transaction, /) -> Prepared: ...
    def close(self) -> None: ...


def load(
    graph: OpenGraph,
    request: LoadRequest,
    author: Author,
    *,
    from_: str | None = None,
    engine: ChooseEngine | None = None,
) -> LoadResult:
    """Load files on a branch; where nobody chooses another engine, in this process.

    A branch that is missing is made from `from_`, once the load is known to be right there.
    """
    paths = [os.fspath(name) for name in request.inputs]
    local = [Path(name) for name in paths if not name.startswith("s3://")]
    with rejects_file(request.rejects, local) as rejects, ExitStack() as open_loads:
        work = _Load(graph, request, author, engine, rejects, open_loads)
        try:
            done = work.run(from_)
        except (LoadRejected, KeyConflict) as refused:
            if rejects is not None:
                work.keep_rejects(otherwise=refused.violations)
                rejects.keep("the load was refused, and")
            raise work.names.told_of(refused) from None
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
        self.names = Names(request.inputs)
        self.ids = LoadIds(graph.root.clock() // 1000)
        self.report = EngineReport("local", "")
        self.items: Sequence[Item] = ()
        self.loading: Loading | None = None

    def run(self, from_: str | None) -> LoadResult:
        graph, author = self.graph, self.author
        source = None
        if from_ is not None and author.branch not in graph.branch_names():
            source = branch_name(from_)
        first = begin(graph, author if source is None else replace(author, branch=source))
        # Files are read once, and before the branch's lock may be needed: others can write meanwhile.
        seen = [(first.schema, self._read(first.schema))]
        ready: list[tuple[LiveSchema, str | None, Mapping[str, Entry], Prepared]] = []

        def prepare(transaction: Transaction) -> Prepared:
            # Versions alone do not tell: a branch that was deleted and made anew counts them once more.
            on = transaction.schema, transaction.base.head, transaction.base.entries
            if ready and ready[-1][:3] == on:
                # A new branch has the very tables of its source, and the load was checked on these.
                return ready[-1][3]
            if seen[-1][0] != transaction.schema:
                seen.append((transaction.schema, self._read(transaction.schema)))
            ready.append((*on, seen[-1][1].prepared(transaction)))
            self.keep_rejects()
            return ready[-1][3]

        if source is None:
            making: AbstractContextManager[bool] = nullcontext(False)
        else:
            # Checked on what the branch begins with: one that is refused makes no branch.
            prepare(first)
            making = new_branch(graph, author.branch, source)
        with making as created:
            receipt = write(graph, author, prepare)
        return replace(self._result(seen[-1][1], receipt.commit if receipt else None), branch_created=created)

    def _read(self, schema: LiveSchema) -> Loading:
        request, self.loading = self.request, None
        # Whole files first: how many bytes there are decides who reads them, and in which parts.
        whole = plan_items(request.inputs, schema.catalog, request.mapping, cores=1, split=_WHOLE)
        self.items = whole
        self.loading = loading = self._loading(schema, whole)
        self.open_loads.enter_context(closing(loading))
        if loading.wrong and not request.skip_bad:
            unread, counts = tuple(islice(loading.unread(), VIOLATIONS_TOLD)), loading.wrong
            raise LoadRejected(unread, total=counts.total(), counts=counts, remedy=MEND)
        return loading

    def _loading(self, schema: LiveSchema, whole: Sequence[Item]) -> Loading:
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
                told=VIOLATIONS_TOLD if request.rejects is None else None,
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
            leaves_out=request.skip_bad,
            notes_all=request.rejects is not None,
        )
        return LargeLoad(job, engine.runner, items, request.mode, skip_bad=request.skip_bad)

    def keep_rejects(self, otherwise: Iterable[Violation] = ()) -> None:
        """Write to a file what is wrong with the load, as far as it came; one of its own may be missing."""
        if self.rejects is None:
            return
        loading = self.loading
        found = (
            otherwise if loading is None else chain(loading.unread(), loading.skipped(), loading.refused())
        )
        record_of = Records(self.items).of
        self.rejects.write((self.names.told(one), record_of(one)) for one in found)

    def _result(self, loading: Loading, commit: Commit | None) -> LoadResult:
        told = chain(loading.unread(), loading.skipped())
        counts = loading.wrong + loading.left_out
        return LoadResult(
            nodes=_of_kind("node", loading.counts()),
            edges=_of_kind("edge", loading.counts()),
            commit=commit,
            skipped=tuple(map(self.names.told, islice(told, VIOLATIONS_TOLD))),
            skipped_counts=dict(counts),
            engine=replace(self.report, stages=tuple(loading.reports)),
        )


def _of_kind(kind: str, counts: Mapping[str, int]) -> dict[str, int]:
    return {split_key(key)[1]: rows for key, rows in counts.items() if split_key(key)[0] == kind}
