"""Runners of the tasks of a load: this process, or another implementation of the protocol.

A load is written once, as tasks over items and as reductions over rows that share a key. A task is a plain
function of plain values, so that it can run anywhere; nothing but its answer comes back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from importlib import import_module
from tempfile import TemporaryFile
from typing import IO, Any, Literal, Protocol, TypeVar

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.tasks.buckets import partition_rows
from omnigraph.errors import BadRequest
from omnigraph.progress import begin_stage
from omnigraph.storage.scratch import wrap_temporary_errors

Item = TypeVar("Item")
Answer = TypeVar("Answer")

HELD_IN_MEMORY = 256 * 2**20


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows that meet all other rows with the same key in one reduction."""

    tag: str
    """Tells a reduction what the rows are; rows with one tag have the same columns."""
    rows: pa.Table
    key: str
    """The column that holds the key: texts, none of them null."""


Emit = Callable[[Item], Iterator[KeyedRows]]
Reduce = Callable[[Mapping[str, pa.Table]], Answer]
"""From the rows of a part of all keys, by tag, to an answer."""


class Runner(Protocol):
    """Runs tasks; answers come in any order."""

    @property
    def name(self) -> str:
        """What a receipt calls it."""
        ...

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def each(self, stage: str, items: Sequence[Item], task: Callable[[Item], Answer]) -> Iterator[Answer]:
        """One task for each item."""
        ...

    def grouped(
        self,
        stage: str,
        items: Sequence[Item],
        emit: Emit[Item],
        reduce: Reduce[Answer],
        buckets: int,
        *,
        streamed: bool = False,
    ) -> Iterator[Answer]:
        """Group the rows that items emit by key into so many buckets, and reduce each bucket.

        Answers that are `streamed` come one by one, and are not in this process all at once.
        """
        ...


class LocalRunner:
    """Runs tasks in this process, one after another."""

    name = "local"
    cores = 1

    def each(self, stage: str, items: Sequence[Item], task: Callable[[Item], Answer]) -> Iterator[Answer]:
        """One task for each item, in their order."""
        if not items:
            return
        begun = begin_stage(stage, tasks=len(items))
        for item in items:
            answer = task(item)
            begun.advance(tasks=1)
            yield answer
        begun.end()

    def grouped(
        self,
        stage: str,
        items: Sequence[Item],
        emit: Emit[Item],
        reduce: Reduce[Answer],
        buckets: int,
        *,
        streamed: bool = False,
    ) -> Iterator[Answer]:
        """As `Runner.grouped`; rows beyond what memory may hold wait in a file."""
        with closing(_BucketStore()) as held:
            begun = begin_stage(stage, tasks=len(items))
            for item in items:
                for keyed in emit(item):
                    for bucket, rows in partition_rows(keyed.rows, keyed.key, buckets):
                        held.add(bucket, keyed.tag, rows)
                begun.advance(tasks=1)
            begun.expect(len(held.buckets))
            for bucket in held.buckets:
                answer = reduce(held.take(bucket))
                begun.advance(tasks=1)
                yield answer
            begun.end()


class _BucketStore:
    """Rows by bucket and tag, in memory while they are few.

    The others wait in a file without a name: however this process ends, nothing is left of it.
    """

    def __init__(self) -> None:
        self._rows: dict[int, dict[str, list[pa.Table]]] = {}
        self._file: IO[bytes] | None = None
        self._spilled: dict[int, list[tuple[str, int, int]]] = {}
        """By bucket: tag, where in the file, and how many bytes."""
        self._bytes = 0

    @property
    def buckets(self) -> list[int]:
        return sorted(self._rows.keys() | self._spilled.keys())

    def add(self, bucket: int, tag: str, rows: pa.Table) -> None:
        self._rows.setdefault(bucket, {}).setdefault(tag, []).append(rows)
        self._bytes += rows.nbytes
        if self._bytes > HELD_IN_MEMORY:
            with wrap_temporary_errors():
                self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(prefix="omnigraph-load-")  # noqa: SIM115 - closed with the rest
        for bucket, tags in self._rows.items():
            for tag, parts in tags.items():
                whole, sink = pa.concat_tables(parts), pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, whole.schema) as writer:
                    writer.write_table(whole)
                place = self._file.tell()
                size = self._file.write(sink.getvalue())
                self._spilled.setdefault(bucket, []).append((tag, place, size))
        self._file.flush()
        self._rows.clear()
        self._bytes = 0

    def take(self, bucket: int) -> dict[str, pa.Table]:
        found = self._rows.pop(bucket, {})
        for tag, place, size in self._spilled.pop(bucket, []):
            assert self._file is not None
            data = os.pread(self._file.fileno(), size, place)
            found.setdefault(tag, []).append(pa.ipc.open_stream(data).read_all())
        return {tag: pa.concat_tables(parts) for tag, parts in found.items()}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


EngineName = Literal["auto", "local", "spark"]

SPARK = "spark"
_MODULES = {SPARK: "omnigraph.pipeline.spark_engine"}
"""The module of each engine; it defines `choose` (a `Choose`) and `FRAMES` (a `Frames`)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Who carries out a load, and why."""

    runner: Runner
    why: str


ChooseEngine = Callable[[int], Engine | None]
"""The engine for so many bytes of input; None means this process."""


class EngineFactory(Protocol):
    """An engine for so many bytes of input; `asked` when the user named it, and it is not its own choice."""

    def __call__(self, size: int, *, asked: bool) -> Engine | None: ...


def select_engine(name: str, size: int, at_hand: Engine | None = None) -> Engine | None:
    """The engine that a load of so many bytes runs on; None means this process.

    One that is `at_hand`, because the rows come from it, is taken unless another is asked for.
    """
    if name == "local":
        return None
    if at_hand is not None and name in ("auto", at_hand.runner.name):
        return at_hand
    if name == "auto":
        chosen = (_load_factory(other)(size, asked=False) for other in _MODULES)
        return next((engine for engine in chosen if engine is not None), None)
    if name not in _MODULES:
        raise BadRequest(
            f"there is no engine '{name}'", remedy=f"choose one of: auto, local, {', '.join(_MODULES)}"
        )
    return _load_factory(name)(size, asked=True)


def _load_factory(name: str) -> EngineFactory:
    choose: EngineFactory = engine_module(name).choose
    return choose


def engine_module(name: str) -> Any:
    """Import the module of an engine, on its first use."""
    # By its path: the pipeline is above the engine, which must not import it, and its packages are optional.
    return import_module(_MODULES[name])


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """The tasks of one stage, as Spark counted them; None where it does not tell."""

    stage: str
    """As progress calls it."""
    spark_jobs: tuple[int, ...]
    """Spark's numbers, as in its event log; a Connect server shows none of its jobs."""
    spark_stages: tuple[int, ...]
    tasks: int
    failed_tasks: int | None = None
    task_seconds: float | None = None
    """Of all tasks together."""
    garbage_seconds: float | None = None
    """The part of it that the JVM spent on garbage collection."""
    input_rows: int | None = None
    """Rows that Spark itself read; those that our tasks read from files are in the stages of a load."""
    input_bytes: int | None = None
    shuffle_bytes: int | None = None
    spilled_bytes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The value as scripts read it."""
        seconds = {"task_seconds": self.task_seconds, "garbage_seconds": self.garbage_seconds}
        return {
            "stage": self.stage,
            "spark_jobs": list(self.spark_jobs),
            "spark_stages": list(self.spark_stages),
            "tasks": self.tasks,
            "failed_tasks": self.failed_tasks,
            **{name: None if value is None else round(value, 3) for name, value in seconds.items()},
            "input_rows": self.input_rows,
            "input_bytes": self.input_bytes,
            "shuffle_bytes": self.shuffle_bytes,
            "spilled_bytes": self.spilled_bytes,
        }


_collected: ContextVar[list[TaskMetrics] | None] = ContextVar("omnigraph_task_metrics", default=None)


@contextmanager
def collect_metrics() -> Iterator[list[TaskMetrics]]:
    """Collect the metrics of all stages in the block; a block around it gets them, too."""
    outer, found = _collected.get(), list[TaskMetrics]()
    before = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(before)
        if outer is not None:
            outer += found


def collects_metrics() -> bool:
    """Whether anything collects metrics: to ask Spark for them takes a while."""
    return _collected.get() is not None


def add_metrics(metrics: TaskMetrics) -> None:
    """Add the metrics of a stage that is over."""
    found = _collected.get()
    if found is not None:
        found.append(metrics)
