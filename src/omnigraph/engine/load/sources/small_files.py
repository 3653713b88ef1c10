"""Small files of records, read together: parsing one costs more than its few lines do.

Their lines are parsed as one text. Rows and violations are then located in their own files, and generated
ids follow from the place in the own file, so that the result does not depend on what was read together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.item import Format, Item
from omnigraph.engine.load.sources.item_reader import read_item
from omnigraph.engine.load.sources.line_ranges import BLOCK, line_blocks
from omnigraph.engine.rows.ids import IdSource
from omnigraph.engine.rows.lines import Limits, Split
from omnigraph.engine.rows.row_builder import CheckedRows
from omnigraph.engine.rows.split_reader import LoadReader, SplitRows
from omnigraph.engine.rows.violations import Numbers, Violation
from omnigraph.storage.input_files import is_in_bucket

SMALL = 64 * 2**10
"""Files up to this size are read together. No line of one can exceed a limit, whose message names a place."""
_AT_ONCE = 16
"""So many files of a bucket are fetched at the same time, because each takes a while to answer."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of one item, or of several small files that were read together."""

    items: tuple[Item, ...]
    rows: SplitRows
    lines: tuple[int, ...]
    """How many lines were read of each item."""


def read_files(items: Sequence[Item], reader: LoadReader) -> Iterator[FileRows]:
    """The rows of items in their order; lines count from 1 at the beginning of each item."""
    for run in _runs(items):
        if len(run) == 1:
            yield from (FileRows(run, rows, (rows.lines,)) for rows in read_item(run[0], reader))
        else:
            yield _read_together(run, reader)


def _runs(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Small files that follow each other, up to the size of a block; other items one by one."""
    held: list[Item] = []
    size = 0
    for item in items:
        if held and not (_is_small(item) and size + item.size <= BLOCK and _is_next(held[-1], item)):
            yield tuple(held)
            held, size = [], 0
        held.append(item)
        size += item.size
        if not _is_small(item):
            yield tuple(held)
            held, size = [], 0
    if held:
        yield tuple(held)


def _is_small(item: Item) -> bool:
    return item.format is Format.NDJSON and not item.begin and item.size <= SMALL


def _is_next(held: Item, item: Item) -> bool:
    """Whether an item begins another file: only the last part of a file ends where the file does."""
    return held.file_number != item.file_number


def _read_together(run: tuple[Item, ...], reader: LoadReader) -> FileRows:
    texts = _texts(run, reader.limits)
    lines = [text.count(b"\n") for text in texts]
    places = _Places(
        run,
        np.array([item.file_number for item in run], np.int64),
        np.array([0, *accumulate(lines)][:-1], np.int64),
        np.array([0, *accumulate(map(len, texts))][:-1], np.int64),
    )
    located = replace(reader, ids=MergedIds(reader.ids, places.numbers, places.offsets))
    rows = located.read(Split(run[0].file, b"".join(texts)))
    return FileRows(run, places.locate(rows), tuple(lines))


def _texts(run: Sequence[Item], limits: Limits) -> list[bytes]:
    """The text of each file, up to the end of its last line."""

    def read(item: Item) -> bytes:
        text = b"".join(block.data for block in line_blocks(item, limits))
        return text if text.endswith(b"\n") or not text else text + b"\n"

    if not is_in_bucket(run[0].at):
        return [read(item) for item in run]
    with ThreadPoolExecutor(min(_AT_ONCE, len(run))) as threads:
        return list(threads.map(read, run))


@dataclass(frozen=True, slots=True)
class MergedIds:
    """Generates the ids that rows of merged files have in their own files."""

    ids_of: IdSource
    numbers: Numbers
    """The numbers of the files."""
    offsets: Numbers
    """Where each of them begins in the merged text."""

    def ids(self, file_number: int | Numbers, positions: Numbers) -> pa.Array:
        """The ids of records by where they stand in the merged text."""
        place = np.searchsorted(self.offsets, positions, side="right") - 1
        return self.ids_of.ids(self.numbers[place], positions - self.offsets[place])


@dataclass(frozen=True, slots=True)
class _Places:
    """Where files stand in their merged text."""

    items: tuple[Item, ...]
    numbers: Numbers
    lines: Numbers
    """How many lines come before each file."""
    offsets: Numbers

    def locate(self, rows: SplitRows) -> SplitRows:
        """The same rows by file and line."""
        return SplitRows(
            tuple(map(self._locate_rows, rows.shaped)),
            tuple(map(self._locate_violation, rows.violations)),
            rows.lines,
        )

    def _locate_rows(self, shaped: CheckedRows) -> CheckedRows:
        place = self._file(shaped.lines)
        return replace(
            shaped, lines=shaped.lines - self.lines[place], file_number=self.numbers[place], violations=()
        )

    def _locate_violation(self, one: Violation) -> Violation:
        assert one.line is not None, "a line of a merged text has a number"
        place = int(self._file(np.array([one.line]))[0])
        return replace(one, file=self.items[place].file).moved(-int(self.lines[place]))

    def _file(self, lines: Numbers) -> Numbers:
        found: Numbers = np.searchsorted(self.lines, lines, side="left") - 1
        return found
