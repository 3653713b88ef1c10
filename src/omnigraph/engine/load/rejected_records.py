"""The records that violations are about, re-read from their files: only their places are in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyarrow import types as kinds

from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.item_reader import column_blocks
from omnigraph.engine.load.sources.line_ranges import line_blocks
from omnigraph.engine.rows.splits import Limits
from omnigraph.engine.rows.violations import Violation

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
                self._line = self._record(self._line)
        self.number = number
        return _json_or_text(self._line)

    def _record(self, line: bytes) -> bytes:
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
        members = {name: _value(row.column(name)) for name in row.schema.names}
        return msgspec.Raw(msgspec.json.encode(members, enc_hook=str))


def _value(column: pa.Array) -> Any:
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
