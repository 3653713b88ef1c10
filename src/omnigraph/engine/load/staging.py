"""The first task of a load: an item of input from its bytes to checked rows in files of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import fnv1a64, split_key
from omnigraph.engine.graph.table_types import ID, SYSTEM_COLUMNS
from omnigraph.engine.load.id_files import BitmapBuilder, IdHashes, NumberBitmap, write_id_hashes
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.request import kinds_of
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.item_reader import FileRows, read_files
from omnigraph.engine.rows.row_builder import CheckedRows
from omnigraph.engine.rows.violations import Numbers, Violation
from omnigraph.engine.tasks.buckets import Hashes, hash_keys
from omnigraph.storage.pieces import Piece, write_pieces
from omnigraph.storage.scratch import write_scratch
from omnigraph.storage.session import Access

AT_ONCE = 10_000
"""So many are in one file, and in memory."""

_READER = msgspec.msgpack.Decoder(list[Violation])


@dataclass(slots=True)
class ViolationWriter:
    """What is wrong with the rows of one item; a task that runs twice writes the same files twice."""

    job: LoadJob
    item: int
    files: int = 0
    held: list[Violation] = field(default_factory=list)

    def add(self, found: Sequence[Violation]) -> None:
        """Note some more."""
        self.held += found
        while len(self.held) >= AT_ONCE:
            self._write_file(self.held[:AT_ONCE])
            self.held = self.held[AT_ONCE:]

    def finish(self) -> int:
        """How many files there are in the end."""
        if self.held:
            self._write_file(self.held)
            self.held = []
        return self.files

    def _write_file(self, some: list[Violation]) -> None:
        body = msgspec.msgpack.encode(some)
        write_scratch(self.job.root.objects, self.job.violations(self.item, self.files), body)
        self.files += 1


def read_violations(job: LoadJob, item: int, files: int) -> Iterator[Violation]:
    """All that was noted about the rows of an item, in their order."""
    for number in range(files):
        body = job.root.objects.read_bytes_if_exists(job.violations(item, number))
        assert body is not None
        yield from _READER.decode(body)


PIECE_BYTES = 256 * 2**20
"""Rows of one type are written once they take so much memory."""


@dataclass(frozen=True, slots=True)
class StagedType:
    """The rows of one type in one item."""

    key: str
    pieces: tuple[Piece, ...]
    given: int
    """How many of their ids were given, or follow from a key; the others are new."""
    first_line: int | None
    """The line of the first row where the rows follow each other line by line; else the lines are on file."""
    id_hashes: IdHashes | None = None
    """The hashes of all ids, where none of them is new."""
    bitmaps: Mapping[str, NumberBitmap] = field(default_factory=dict)
    """The ids, where none of them is new, and the ends of edges, by column: where they are numbers."""
    nulls: Mapping[str, int] = field(default_factory=dict)
    """How many values of columns are missing, by property."""

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(piece.rows for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class StagedItem:
    """What became of one item."""

    item: Item
    lines: tuple[int, ...]
    """How many lines each of its files has."""
    types: tuple[StagedType, ...]
    violations: tuple[Violation, ...] = ()
    """What is wrong with the first wrong rows, in input order; lines count from the beginning of the item."""
    wrong: Counter[str] = field(default_factory=Counter)
    """How many of these there are in all, by kind."""
    notes: int = 0
    """In how many files all of them are noted; 0 where that was not asked for."""

    def locate(self, line: int) -> tuple[Item, int]:
        """The file of a line that is counted from the beginning of the item, and its line there."""
        if not self.item.following:
            return self.item, line
        ends = np.cumsum(self.lines)
        place = int(np.searchsorted(ends, line))
        return self.item.files[place], line - int(ends[place] - self.lines[place])


@dataclass(frozen=True, slots=True)
class StagedLoad:
    """Rows that tasks elsewhere have read, checked and staged before the load began."""

    job: LoadJob
    schema_hash: str
    """The schema by which they were read."""
    items: tuple[StagedItem, ...]
    """By number."""


def stage_item(item: Item, job: LoadJob) -> StagedItem:
    """Read, shape and check the rows of an item, and write those that are fine."""
    access, reader = job.root.tables.access, job.reader()
    writers: dict[str, _Writer] = {}
    reported: list[Violation] = []
    wrong: Counter[str] = Counter()
    notes = ViolationWriter(job, item.number)
    lines = _FileLines(item.files)
    for found in read_files(item.files, reader):
        block = found.rows
        lines.add(found)
        for shaped in block.shaped:
            # A type whose rows are all wrong is part of the load, too.
            new = _Writer(job, access, shaped.rows.schema)
            writers.setdefault(shaped.key, new).add(shaped, lines.in_item(shaped))
        wrong.update(kinds_of(block.violations))
        reported += block.violations[: max(0, job.report_limit - len(reported))]
        if job.keeps_all:
            notes.add(block.violations)
    types = tuple(writers[key].finish(job, item.number) for key in sorted(writers))
    return StagedItem(item, tuple(lines.counts.tolist()), types, tuple(reported), wrong, notes.finish())


class _FileLines:
    """How many lines the files of an item have, as far as they were read."""

    def __init__(self, files: Sequence[Item]) -> None:
        self._numbers = np.array([file.file_number for file in files], np.int64)
        self.counts = np.zeros(len(files), np.int64)

    def add(self, found: FileRows) -> None:
        first = int(np.searchsorted(self._numbers, found.items[0].file_number))
        self.counts[first : first + len(found.lines)] += found.lines

    def in_item(self, shaped: CheckedRows) -> Numbers:
        """The lines of rows, counted from the beginning of the item; all files before are read by now."""
        place = np.searchsorted(self._numbers, shaped.file_number)
        found: Numbers = shaped.lines + (np.cumsum(self.counts) - self.counts)[place]
        return found


@dataclass(slots=True)
class _Writer:
    """Collects the rows of a type and writes them in large pieces."""

    job: LoadJob
    access: Access
    schema: pa.Schema
    batches: list[pa.RecordBatch] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    lines: list[Numbers] = field(default_factory=list)
    hashes: list[Hashes] = field(default_factory=list)
    builders: dict[str, BitmapBuilder] = field(default_factory=dict)
    nulls: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    rows: int = 0
    given: int = 0
    key: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        """The columns that hold ids; a node may have properties that are called like the ends of an edge."""
        return SYSTEM_COLUMNS[split_key(self.key)[0]]

    def add(self, shaped: CheckedRows, lines: Numbers) -> None:
        self.key = shaped.key
        self.batches.append(shaped.rows)
        self.lines.append(lines)
        self.nulls.update(shaped.nulls)
        self.rows += shaped.count
        self.given += int(np.count_nonzero(~shaped.generated))
        if self.given == self.rows:
            self.hashes.append(hash_keys(shaped.rows.column(ID)))
        for name in self.ids:
            if name != ID or self.given == self.rows:
                self.builders.setdefault(name, BitmapBuilder()).add(shaped.rows.column(name))
        self.bytes += shaped.rows.nbytes
        if self.bytes > PIECE_BYTES:
            self.flush()

    def flush(self) -> None:
        if self.bytes:
            rows = pa.Table.from_batches(self.batches, self.schema)
            self.pieces += write_pieces(self.access, self.job.pieces(self.key), rows, list(self.ids))
            self.batches, self.bytes = [], 0

    def finish(self, job: LoadJob, item: int) -> StagedType:
        self.flush()
        lines = np.concatenate(self.lines)
        first: int | None = int(lines[0]) if len(lines) else 0
        if first and int(lines[-1]) - first + 1 != len(lines):
            write_scratch(job.root.objects, job.lines(item, self.key), lines.astype("<u4").tobytes())
            first = None
        id_hashes, name = None, f"{item}{job.attempt}-{fnv1a64(self.key)}"
        if self.rows and self.given == self.rows:
            id_hashes = write_id_hashes(job, name, self.hashes)
        else:
            self.builders.pop(ID, None)
        kept = {column: one.write(job, f"{name}-{column}") for column, one in self.builders.items()}
        bitmaps = {column: one for column, one in kept.items() if one is not None}
        return StagedType(
            self.key, tuple(self.pieces), self.given, first, id_hashes, bitmaps, dict(self.nulls)
        )


def read_lines(job: LoadJob, item: int, staged: StagedType, rows: Numbers) -> Numbers:
    """The lines, counted from the beginning of the item, of some rows by their place among the type's."""
    if staged.first_line is not None:
        return rows + staged.first_line
    stored = job.root.objects.read_bytes_if_exists(job.lines(item, staged.key))
    assert stored is not None
    return np.frombuffer(stored, "<u4").astype(np.int64)[rows]


def count_lines_before(items: Sequence[StagedItem]) -> Mapping[int, int]:
    """For each item, by number, how many lines of its file come before it."""
    before, seen = {}, Counter[int]()
    for staged in sorted(items, key=lambda one: one.item.number):
        before[staged.item.number] = seen[staged.item.file_number]
        seen[staged.item.file_number] += sum(staged.lines)
    return before
