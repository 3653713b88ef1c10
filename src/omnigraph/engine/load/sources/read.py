"""An item of a load from its bytes to checked rows; what a task does, in this process or in another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from omnigraph.engine.load.sources.blocks import Block, shape_block
from omnigraph.engine.load.sources.columnar import arrow_blocks, lance_blocks, numbered, parquet_blocks
from omnigraph.engine.load.sources.csv_blocks import csv_blocks
from omnigraph.engine.load.sources.formats import Format
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.ranges import line_blocks
from omnigraph.engine.write.read import LoadReader, SplitRows
from omnigraph.engine.write.splits import Split
from omnigraph.errors import BadRequest, InternalError


def read_item(item: Item, reader: LoadReader) -> Iterator[SplitRows]:
    """The rows of an item, block by block; lines count from 1 at its beginning."""
    if item.format.is_records:
        yield from _records(item, reader)
        return
    _refuse_expressions(item)
    for block in _blocks(item, reader):
        yield shape_block(block, item, reader)


def read_batches(batches: Iterable[pa.RecordBatch], item: Item, reader: LoadReader) -> Iterator[SplitRows]:
    """Rows that somebody else read, in the columns of the item's mapping, with expressions worked out."""
    for block in numbered(batches, item.first_row):
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


def _refuse_expressions(item: Item) -> None:
    if item.mapping is not None and item.mapping.expressions:
        raise BadRequest(
            f"the mapping of '{item.file}' has expressions, which only Spark works out",
            remedy="load with `--engine spark`, or use columns and constants alone",
        )


def without_expressions(item: Item) -> Item:
    """The item once its expressions are columns of the same names as what they become."""
    assert item.mapping is not None
    mapping = item.mapping
    taken = (*mapping.taken, *((becomes, becomes) for becomes, _ in mapping.expressions))
    return replace(item, mapping=replace(mapping, taken=taken, expressions=()))
