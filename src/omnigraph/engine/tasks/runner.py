"""Runners of the tasks of a load: this process, or another implementation of the protocol.

A load is written once, as tasks over items and as reductions over rows that share a key. A task is a plain
function of plain values, so that it can run anywhere; nothing but its answer comes back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Protocol, TypeVar

import pyarrow as pa

from omnigraph.engine.tasks.buckets import partition_rows
from omnigraph.progress import begin_stage
from omnigraph.storage.temporary_folders import wrap_temporary_errors

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
