"""Who carries out the tasks of a load: this process, or whatever satisfies the same protocol.

A load is written once, as tasks over items and as reductions over rows that share a key. A task is a plain
function of plain values, so that it can run anywhere; nothing but its answer comes back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from omnigraph.engine.load.buckets import partitioned

Item = TypeVar("Item")
Answer = TypeVar("Answer")

HELD_IN_MEMORY = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Keyed:
    """Rows that meet all other rows with the same key in one reduction."""

    tag: str
    """Tells a reduction what the rows are; rows with one tag have the same columns."""
    rows: pa.Table
    key: str
    """The column that holds the key: texts, none of them null."""


Emit = Callable[[Item], Iterator[Keyed]]
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
        self, stage: str, items: Sequence[Item], emit: Emit[Item], reduce: Reduce[Answer], buckets: int
    ) -> Iterator[Answer]:
        """The rows that items emit, brought together by key in so many buckets, and each bucket reduced."""
        ...


class LocalRunner:
    """Runs tasks in this process, one after another."""

    name = "local"
    cores = 1

    def each(self, stage: str, items: Sequence[Item], task: Callable[[Item], Answer]) -> Iterator[Answer]:
        """One task for each item, in their order."""
        return map(task, items)

    def grouped(
        self, stage: str, items: Sequence[Item], emit: Emit[Item], reduce: Reduce[Answer], buckets: int
    ) -> Iterator[Answer]:
        """As `Runner.grouped`; rows beyond what memory may hold wait in files."""
        with tempfile.TemporaryDirectory(prefix="omnigraph-load-") as folder:
            held = _Held(Path(folder))
            for item in items:
                for keyed in emit(item):
                    for bucket, rows in partitioned(keyed.rows, keyed.key, buckets):
                        held.add(bucket, keyed.tag, rows)
            for bucket in held.buckets:
                yield reduce(held.take(bucket))


class _Held:
    """Rows by bucket and tag, in memory while they are few."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: dict[int, dict[str, list[pa.Table]]] = {}
        self._files: dict[int, list[tuple[str, Path]]] = {}
        self._bytes = 0

    @property
    def buckets(self) -> list[int]:
        return sorted(self._rows.keys() | self._files.keys())

    def add(self, bucket: int, tag: str, rows: pa.Table) -> None:
        self._rows.setdefault(bucket, {}).setdefault(tag, []).append(rows)
        self._bytes += rows.nbytes
        if self._bytes > HELD_IN_MEMORY:
            self._spill()

    def _spill(self) -> None:
        for bucket, tags in self._rows.items():
            files = self._files.setdefault(bucket, [])
            for tag, parts in tags.items():
                path = self._folder / f"{bucket}-{len(files)}.arrow"
                whole = pa.concat_tables(parts)
                with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, whole.schema) as writer:
                    writer.write_table(whole)
                files.append((tag, path))
        self._rows.clear()
        self._bytes = 0

    def take(self, bucket: int) -> dict[str, pa.Table]:
        found = self._rows.pop(bucket, {})
        for tag, path in self._files.pop(bucket, []):
            with pa.memory_map(str(path)) as source:
                found.setdefault(tag, []).append(pa.ipc.open_stream(source).read_all())
        return {tag: pa.concat_tables(parts) for tag, parts in found.items()}
