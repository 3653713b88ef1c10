"""An item of a load from its bytes to checked rows; what a task does, in this process or in another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.engine.load.sources.blocks import Block, build_block_rows
from omnigraph.engine.load.sources.columnar import arrow_blocks, lance_blocks, parquet_blocks
from omnigraph.engine.load.sources.csv_records import csv_blocks
from omnigraph.engine.load.sources.item import Format, Item
from omnigraph.engine.load.sources.line_ranges import line_blocks
from omnigraph.engine.rows.lines import Limits, Split
from omnigraph.engine.rows.split_reader import LoadReader, SplitRows
from omnigraph.errors import InternalError


def read_item(item: Item, reader: LoadReader) -> Iterator[SplitRows]:
    """The rows of an item, block by block; lines count from 1 at its beginning."""
    if item.format.is_records:
        yield from _records(item, reader)
        return
    block: Block | None = None
    for block in column_blocks(item, reader.limits):
        yield build_block_rows(block, item, reader)
    if block is None:
        # A file that names its type makes it a part of the load, also without rows.
        yield build_block_rows(_nothing(item), item, reader)


def _records(item: Item, reader: LoadReader) -> Iterator[SplitRows]:
    line = 1
    for block in line_blocks(item, reader.limits):
        split = Split(item.file, block.data, item.file_number, line, block.offset)
        found = reader.read(split)
        line += found.lines
        yield found


def _nothing(item: Item) -> Block:
    assert item.mapping is not None
    kind, none = pa.binary() if item.format.is_csv else pa.null(), np.zeros(0, np.int64)
    names = list(item.mapping.needed)
    return Block(pa.RecordBatch.from_arrays([pa.array([], kind)] * len(names), names=names), none, none, 0)


def column_blocks(item: Item, limits: Limits | None = None) -> Iterator[Block]:
    """The rows of an item as they are in its file."""
    if item.format.is_csv:
        return csv_blocks(item, limits or Limits())
    if item.begin == item.end and item.format is not Format.ARROW:
        return iter(())
    match item.format:
        case Format.PARQUET:
            return parquet_blocks(item)
        case Format.ARROW:
            return arrow_blocks(item)
        case Format.LANCE:
            return lance_blocks(item)
    raise InternalError(f"nothing reads '{item.format}'")
