"""An item of a load from its bytes to checked rows; what a task does, in this process or in another."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.engine.load.sources.blocks import Block, shape_block
from omnigraph.engine.load.sources.columnar import arrow_blocks, lance_blocks, parquet_blocks
from omnigraph.engine.load.sources.csv_blocks import csv_blocks
from omnigraph.engine.load.sources.formats import Format
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.ranges import line_blocks
from omnigraph.engine.write.read import LoadReader, SplitRows
from omnigraph.engine.write.splits import Split
from omnigraph.errors import InternalError


def read_item(item: Item, reader: LoadReader) -> Iterator[SplitRows]:
    """The rows of an item, block by block; lines count from 1 at its beginning."""
    if item.format.is_records:
        yield from _records(item, reader)
        return
    for block in _blocks(item, reader):
        yield shape_block(block, item, reader)


def _records(item: Item, reader: LoadReader) -> Iterator[SplitRows]:
    line = 1
    for block in line_blocks(item, reader.limits):
        split = Split(item.file, block.data, item.file_number, line, block.offset)
        found = reader.read(split)
        line += found.lines
        yield found


def _blocks(item: Item, reader: LoadReader) -> Iterator[Block]:
    if item.format.is_csv:
        return csv_blocks(item, reader.limits)
    match item.format:
        case Format.PARQUET:
            return parquet_blocks(item)
        case Format.ARROW:
            return arrow_blocks(item)
        case Format.LANCE:
            return lance_blocks(item)
    raise InternalError(f"nothing reads '{item.format}'")
