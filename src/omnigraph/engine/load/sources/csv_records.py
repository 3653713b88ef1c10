"""CSV as RFC 4180 has it: where records begin and end, and which are not well-formed.

Records are found by counting quotes, on whole blocks of bytes. What is left after that is regular, so that
Arrow's reader sees the very same records.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.item import Block, Columns, Dialect, Item
from omnigraph.engine.load.sources.line_ranges import BLOCK, TextBlock, line_blocks, open_text
from omnigraph.engine.rows.lines import Limits, Readable
from omnigraph.engine.rows.violations import Flags, Numbers, Violation
from omnigraph.errors import BadRequest, InternalError, ResourceLimitExceeded

Bytes = NDArray[np.uint8]

_QUOTE, _LF, _CR = 34, 10, 13
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_STRAY_QUOTE = "a quote inside a field needs quotes around the field, and stands there twice"
_STRAY_RETURN = "a carriage return inside a field needs quotes around the field"
_OPEN_QUOTE = "a quoted field does not end"
MISLEADING = frozenset({_STRAY_QUOTE, _OPEN_QUOTE})
"""After such a mistake it is unknown where the next record begins, if fields may hold line ends."""


@dataclass(frozen=True, slots=True)
class CsvRecords:
    """The records of a block."""

    starts: Numbers
    """Where each begins in the block."""
    ends: Numbers
    """One past its line end."""
    lines: Numbers
    """The line of the block each begins on, from 0."""
    line_count: int
    is_row: Flags
    """Which are well-formed and not blank."""
    problems: tuple[tuple[int, str], ...]
    """Pairs: a record that is not well-formed, and why."""


def record_blocks(stream: Readable, limits: Limits, *, size: int) -> Iterator[TextBlock]:
    """Blocks of whole records of which any may go over several lines."""
    offset, rest = 0, b""
    while piece := stream.read(size):
        data = rest + piece
        cut = _last_record_end(data)
        if cut:
            yield TextBlock(offset, data[:cut])
            offset, rest = offset + cut, data[cut:]
            continue
        rest = data
        if len(rest) > limits.line_bytes:
            raise ResourceLimitExceeded("csv_record_bytes", limit=limits.line_bytes, actual=len(rest))
    if rest:
        yield TextBlock(offset, rest)


def _last_record_end(data: bytes) -> int:
    """Where the last whole record ends: at a line end before which all quotes pair up."""
    quotes = data.count(b'"')
    end = len(data)
    while (found := data.rfind(b"\n", 0, end)) >= 0:
        quotes -= data.count(b'"', found, end)
        if quotes % 2 == 0:
            return found + 1
        end = found
    return 0


def _quoted(buffer: Bytes, quotes: Numbers) -> Flags:
    """Which bytes have an odd number of quotes up to them: those of quoted fields, without the last quote."""
    lengths = np.diff(np.concatenate(([0], quotes, [len(buffer)])))
    return np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)


def scan_records(data: bytes, dialect: Dialect, fields: int) -> CsvRecords:
    """The records of a block that begins with one; each is to have so many fields."""
    buffer = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(buffer == _QUOTE)
    quoted = _quoted(buffer, quotes) if len(quotes) else None
    newlines = np.flatnonzero(buffer == _LF)
    ends = newlines + 1
    if dialect.multiline and quoted is not None:
        ends = ends[~quoted[newlines]]
    if len(data) and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))
    starts = np.concatenate(([0], ends[:-1])) if len(ends) else ends
    looking = _RecordScan(buffer, starts, ends, quotes, quoted)
    problems = looking.problems(ord(dialect.delimiter), fields) if len(starts) else {}
    blank = looking.lengths_without_end() == 0
    is_row = ~blank
    problems = {record: reason for record, reason in problems.items() if not blank[record]}
    is_row[list(problems)] = False
    line_count = len(newlines) + int(len(data) > 0 and buffer[-1] != _LF)
    one_each = len(starts) == line_count
    lines = np.arange(len(starts)) if one_each else np.searchsorted(newlines, starts)
    return CsvRecords(starts, ends, lines, line_count, is_row, tuple(sorted(problems.items())))


@dataclass(slots=True)
class _RecordScan:
    buffer: Bytes
    starts: Numbers
    ends: Numbers
    quotes: Numbers
    quoted: Flags | None
    """By the quotes of the whole block; None when it has none."""

    def lengths_without_end(self) -> Numbers:
        last = self.ends - 1
        lengths = self.ends - self.starts
        if not len(lengths):
            return lengths
        lengths = lengths - (self.buffer[last] == _LF)
        before = np.maximum(self.starts + lengths - 1, 0)
        found: Numbers = lengths - ((lengths > 0) & (self.buffer[before] == _CR))
        return found

    def problems(self, delimiter: int, fields: int) -> dict[int, str]:
        """What is wrong with records, by record; the first reason counts."""
        found: dict[int, str] = {}
        if self.quoted is not None:
            at_end = self.quoted[self.ends - 1]
            odd = at_end != np.concatenate(([False], at_end[:-1]))
            self._restart_after(odd)
            found.update(dict.fromkeys(self._stray_quotes(delimiter), _STRAY_QUOTE))
            for record in np.flatnonzero(odd).tolist():
                found.setdefault(record, _OPEN_QUOTE)
        for record in self._stray_returns():
            found.setdefault(record, _STRAY_RETURN)
        for record, count in self._wrong_counts(delimiter, fields):
            found.setdefault(record, f"expected {fields} fields, got {count}")
        return found

    def _restart_after(self, odd: Flags) -> None:
        """A record with a quote too many must not turn those after it inside out."""
        if odd.any() and self.quoted is not None:
            turned = np.concatenate(([False], np.logical_xor.accumulate(odd)[:-1]))
            self.quoted = self.quoted ^ np.repeat(turned, self.ends - self.starts)

    def _outside(self, byte: int) -> Numbers:
        """Where a byte stands that is not part of a quoted field."""
        places = np.flatnonzero(self.buffer == byte)
        return places if self.quoted is None else places[~self.quoted[places]]

    def _owner(self, places: Numbers) -> Numbers:
        found: Numbers = np.searchsorted(self.starts, places, side="right") - 1
        return found

    def _stray_quotes(self, delimiter: int) -> list[int]:
        """Records with a quote that neither begins nor ends a field nor stands for itself in one."""
        assert self.quoted is not None
        left = np.where(self.quotes > 0, self.buffer[self.quotes - 1], _LF)
        last = len(self.buffer) - 1
        right = np.where(self.quotes < last, self.buffer[np.minimum(self.quotes + 1, last)], _LF)
        # Of a doubled quote the first closes and the second opens again.
        opens_well = (left == delimiter) | (left == _QUOTE) | (left == _LF)
        closes_well = (right == delimiter) | (right == _QUOTE) | (right == _LF) | (right == _CR)
        stray = self.quotes[~np.where(self.quoted[self.quotes], opens_well, closes_well)]
        return _once(self._owner(stray))

    def _stray_returns(self) -> list[int]:
        returns = self._outside(_CR)
        last = len(self.buffer) - 1
        alone = (returns < last) & (self.buffer[np.minimum(returns + 1, last)] != _LF)
        return _once(self._owner(returns[alone]))

    def _wrong_counts(self, delimiter: int, fields: int) -> list[tuple[int, int]]:
        """Records that do not have so many fields, and how many they have."""
        places = self._outside(delimiter)
        if self._regular(places, fields - 1):
            return []
        counts = np.diff(np.searchsorted(places, np.append(self.starts, self.ends[-1:]))) + 1
        wrong = np.flatnonzero(counts != fields)
        return list(zip(wrong.tolist(), counts[wrong].tolist(), strict=True))

    def _regular(self, places: Numbers, each: int) -> bool:
        """Whether each record has so many of the places."""
        if not each or len(places) != each * len(self.starts):
            return len(places) == 0 and each == 0
        dealt = places.reshape(-1, each)
        return bool((dealt[:, 0] >= self.starts).all() and (dealt[:, -1] < self.ends).all())


def _once(records: Numbers) -> list[int]:
    found: list[int] = np.unique(records).tolist()
    return found


def read_header(stream: Readable, dialect: Dialect, file: str, limits: Limits) -> tuple[str, ...]:
    """The names in the first record of a file."""
    data = b""
    while not (end := _last_record_end(data)) and (piece := stream.read(2**16)):
        data += piece
        if len(data) > limits.line_bytes:
            raise ResourceLimitExceeded("csv_record_bytes", limit=limits.line_bytes, actual=len(data))
    first = data[: end or len(data)].removeprefix(BYTE_ORDER_MARK)
    try:
        text = io.StringIO(first.decode(errors="surrogateescape"), newline="")
        rows = csv.reader(text, delimiter=dialect.delimiter, strict=True)
        names = next((row for row in rows if row), [])
        "".join(names).encode()
    except csv.Error as failure:
        raise BadRequest(f"'{file}' has no line of names that can be read: {failure}") from None
    except UnicodeEncodeError:
        raise BadRequest(f"'{file}' has no line of names that can be read: not UTF-8") from None
    if not names or not all(names):
        raise BadRequest(
            f"'{file}' has no line of names, or an empty name in it",
            remedy="begin a CSV file with the names of its columns",
        )
    return tuple(names)


def csv_blocks(item: Item, limits: Limits, *, size: int = BLOCK) -> Iterator[Block]:
    """The rows of an item, texts as they stand in the file."""
    assert item.mapping is not None
    line = 1
    for text in _texts(item, item.mapping, limits, size):
        block = _block(text, item, item.mapping, line)
        line += block.read
        yield block


def _texts(item: Item, columns: Columns, limits: Limits, size: int) -> Iterator[TextBlock]:
    if not columns.dialect.multiline:
        yield from line_blocks(item, limits, size=size)
        return
    with open_text(item) as stream:
        yield from record_blocks(stream, limits, size=size)


def _block(text: TextBlock, item: Item, columns: Columns, first_line: int) -> Block:
    begins = text.offset == 0
    has_names = begins and columns.dialect.has_names
    data = text.data
    if begins:
        data = data.removeprefix(BYTE_ORDER_MARK)
    shift = len(text.data) - len(data)
    records = scan_records(data, columns.dialect, len(columns.header))
    is_row = records.is_row.copy()
    if has_names:
        is_row[_names(records)] = False
    violations = _violations(records, item, columns, first_line)
    rows = _rows(data, records, is_row, columns)
    return Block(
        rows,
        records.lines[is_row] + first_line,
        records.starts[is_row] + text.offset + shift,
        records.line_count,
        violations,
    )


def _names(records: CsvRecords) -> list[int]:
    """The record that holds the names: the first that is not blank."""
    first = [*np.flatnonzero(records.is_row)[:1].tolist(), *(record for record, _ in records.problems[:1])]
    return [min(first)] if first else []


def _violations(records: CsvRecords, item: Item, columns: Columns, first_line: int) -> tuple[Violation, ...]:
    found = [(int(records.lines[record]) + first_line, reason) for record, reason in records.problems]
    for line, reason in found:
        if not columns.dialect.multiline or reason not in MISLEADING:
            continue
        raise BadRequest(
            f"'{item.file}' is not valid CSV from line {line} on: {reason}",
            remedy="fix the file; when no field holds line ends, `multiline: false` in a mapping shows more",
        )
    return tuple(
        Violation(item.file, line, None, f"invalid CSV at line {line}: {reason}") for line, reason in found
    )


def _rows(data: bytes, records: CsvRecords, is_row: Flags, columns: Columns) -> pa.RecordBatch:
    """The columns that are needed of the rows that are wanted."""
    from pyarrow import csv

    names = columns.needed
    count = int(np.count_nonzero(is_row))
    if not count or not names:
        empty = pa.nulls(count, pa.binary())
        return pa.RecordBatch.from_arrays([empty] * len(names), names=list(names))
    if count != len(is_row):
        kept = np.repeat(is_row, records.ends - records.starts)
        data = np.frombuffer(data, np.uint8)[kept].tobytes()
    # Columns go by their place: names of others may be anything.
    places = [str(columns.header.index(name)) for name in names]
    table = csv.read_csv(
        pa.py_buffer(data),
        read_options=csv.ReadOptions(
            column_names=[str(place) for place in range(len(columns.header))],
            use_threads=False,
            block_size=len(data) + 1,
        ),
        parse_options=csv.ParseOptions(
            delimiter=columns.dialect.delimiter, newlines_in_values=columns.dialect.multiline
        ),
        convert_options=csv.ConvertOptions(
            include_columns=places,
            column_types={place: pa.binary() for place in places},
            null_values=["", *columns.dialect.nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    if table.num_rows != count:
        raise InternalError(f"{count} records of CSV were read as {table.num_rows} rows")
    (batch,) = table.combine_chunks().to_batches()
    return pa.RecordBatch.from_arrays(batch.columns, names=list(names))
