"""A CSV file -> blocks of columns of bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.engine.load.sources.blocks import Block
from omnigraph.engine.load.sources.csv_records import (
    BYTE_ORDER_MARK,
    MISLEADING,
    CsvRecords,
    record_blocks,
    scan_records,
)
from omnigraph.engine.load.sources.item import Columns, Item
from omnigraph.engine.load.sources.line_ranges import BLOCK, TextBlock, line_blocks, open_text
from omnigraph.engine.rows.splits import Limits
from omnigraph.engine.rows.violations import Flags, Violation
from omnigraph.errors import BadRequest, InternalError


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
    has_names = text.offset == 0
    data = text.data
    if has_names:
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
