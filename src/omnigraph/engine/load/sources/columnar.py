"""Parquet, Arrow and Lance -> blocks of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.load.sources.blocks import Block
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.load.sources.ranges import reading
from omnigraph.errors import BadRequest
from omnigraph.storage.input_tables import table_batches
from omnigraph.storage.inputs import in_bucket

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

BLOCK_ROWS = 65_536
BLOCK_BYTES = 64 * 2**20
"""A block with more is halved, so that few large values do not fill the memory."""

_ARROW_FILE = b"ARROW1"


def parquet_blocks(item: Item, *, size: int = BLOCK_ROWS) -> Iterator[Block]:
    """The rows of some row groups."""
    assert item.mapping is not None
    with open_parquet(item) as file:
        groups = list(range(item.begin, item.end))
        batches = file.iter_batches(size, row_groups=groups, columns=list(item.mapping.needed))
        yield from numbered(batches, item.first_row)


def arrow_blocks(item: Item, *, size: int = BLOCK_ROWS) -> Iterator[Block]:
    """The rows of an Arrow file or stream."""
    assert item.mapping is not None
    with open_arrow(item) as (_, batches):
        wanted = list(item.mapping.needed)
        small = (part for batch in batches for part in _cut(batch.select(wanted), size))
        yield from numbered(small, item.first_row)


def lance_blocks(item: Item, *, size: int = BLOCK_ROWS) -> Iterator[Block]:
    """The rows of some fragments of a Lance table."""
    assert item.mapping is not None
    assert item.version is not None
    batches = table_batches(item.at, item.version, item.fragments, item.mapping.needed, size)
    yield from numbered(batches, item.first_row)


def numbered(batches: Iterable[pa.RecordBatch], first_row: int) -> Iterator[Block]:
    """Batches as blocks, with their rows counted on."""
    row = 0
    for batch in batches:
        for part in _halved(batch):
            rows = np.arange(row, row + part.num_rows, dtype=np.int64)
            yield Block(part, rows + 1, rows + first_row, part.num_rows)
            row += part.num_rows


def _cut(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    return (batch.slice(start, size) for start in range(0, batch.num_rows, size))


def _halved(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= BLOCK_BYTES or batch.num_rows <= 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halved(batch.slice(0, middle))
    yield from _halved(batch.slice(middle))


# --- files ---------------------------------------------------------------------------------------


@contextmanager
def open_parquet(item: Item) -> Iterator[ParquetFile]:
    """A Parquet file, with its footer read."""
    from pyarrow import parquet as pq

    with _random_access(item) as source, pq.ParquetFile(source, pre_buffer=in_bucket(item.at)) as file:
        yield file


@contextmanager
def open_arrow(item: Item) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """The columns and batches of an Arrow file or stream."""
    with _random_access(item) as source:
        start = source.read(len(_ARROW_FILE))
        source.seek(0)
        if start[:4] == b"FEA1":
            raise BadRequest(
                f"'{item.file}' is of the first version of Feather", remedy="write it again as Arrow"
            )
        if start == _ARROW_FILE:
            file = pa.ipc.open_file(source)
            yield file.schema, (file.get_batch(number) for number in range(file.num_record_batches))
        else:
            stream = pa.ipc.open_stream(source)
            yield stream.schema, iter(stream)


@contextmanager
def _random_access(item: Item) -> Iterator[Any]:
    with reading(item) as stream:
        if not in_bucket(item.at):
            stream.close()
            # Not mapped into memory: rows must stay what was checked, whoever writes to the file meanwhile.
            with pa.OSFile(item.at) as file:
                yield file
            return
        yield pa.PythonFile(stream, mode="r")
