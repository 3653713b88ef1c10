"""Parquet, Arrow and Lance -> blocks of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import types as kinds

from omnigraph.engine.load.sources.item import Block, Item
from omnigraph.engine.load.sources.line_ranges import open_item
from omnigraph.errors import BadRequest
from omnigraph.storage.input_files import is_in_bucket
from omnigraph.storage.input_tables import read_batches

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile


def validate_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch; raises `ArrowInvalid` when its data contradicts itself.

    A text that is not UTF-8 is the one flaw that passes: rows that hold one are refused one by one.
    """
    batch.validate()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            _validate_column(column)
        except pa.ArrowInvalid as wrong:
            raise pa.ArrowInvalid(f"column '{name}' is damaged: {wrong}") from wrong
    return batch


def _validate_column(column: pa.Array) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as wrong:
        if "UTF8" not in str(wrong):
            raise
        # The rest of the column has not been looked at; as bytes it is.
        as_bytes(column).validate(full=True)


def as_bytes(column: pa.Array) -> pa.Array:
    """Return the same buffers with bytes in place of texts."""
    if isinstance(column, pa.ExtensionArray):
        return as_bytes(column.storage)
    if isinstance(column, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(column.indices, as_bytes(column.dictionary), safe=True)
    return column.view(_bytes_type(column.type))


def _bytes_type(kind: pa.DataType) -> pa.DataType:
    if kinds.is_string(kind):
        return pa.binary()
    if kinds.is_large_string(kind):
        return pa.large_binary()
    if kinds.is_string_view(kind):
        return pa.binary_view()
    if kinds.is_fixed_size_list(kind):
        return pa.list_(_bytes_type(kind.value_type), kind.list_size)
    if kinds.is_list(kind):
        return pa.list_(_bytes_type(kind.value_type))
    if kinds.is_large_list(kind):
        return pa.large_list(_bytes_type(kind.value_type))
    return kind


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
        promised = sum(file.metadata.row_group(group).num_rows for group in groups)
        yield from number_rows(_all_rows(map(validate_batch, batches), promised), item.first_row)


def arrow_blocks(item: Item, *, size: int = BLOCK_ROWS) -> Iterator[Block]:
    """The rows of an Arrow file or stream."""
    assert item.mapping is not None
    with open_arrow(item) as (_, batches):
        wanted = list(item.mapping.needed)
        checked = (validate_batch(batch.select(wanted)) for batch in batches)
        small = (part for batch in checked for part in _cut_batch(batch, size))
        yield from number_rows(small, item.first_row)


def lance_blocks(item: Item, *, size: int = BLOCK_ROWS) -> Iterator[Block]:
    """The rows of some fragments of a Lance table."""
    assert item.mapping is not None
    assert item.version is not None
    batches = read_batches(item.at, item.version, item.fragments, item.mapping.needed, size)
    yield from number_rows(batches, item.first_row)


def number_rows(batches: Iterable[pa.RecordBatch], first_row: int) -> Iterator[Block]:
    """Batches as blocks, with their rows counted on."""
    row = 0
    for batch in batches:
        for part in _halve_batch(batch):
            rows = np.arange(row, row + part.num_rows, dtype=np.int64)
            yield Block(part, rows + 1, rows + first_row, part.num_rows)
            row += part.num_rows


def _all_rows(batches: Iterable[pa.RecordBatch], promised: int) -> Iterator[pa.RecordBatch]:
    """The batches, which must have as many rows together as the file says."""
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        yield batch
    if rows != promised:
        raise pa.ArrowInvalid(f"{promised} rows are promised, and {rows} are there")


def _cut_batch(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    return (batch.slice(start, size) for start in range(0, batch.num_rows, size))


def _halve_batch(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= BLOCK_BYTES or batch.num_rows <= 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halve_batch(batch.slice(0, middle))
    yield from _halve_batch(batch.slice(middle))


# --- files ---------------------------------------------------------------------------------------


@contextmanager
def open_parquet(item: Item) -> Iterator[ParquetFile]:
    """A Parquet file, with its footer read."""
    from pyarrow import parquet as pq

    with _random_access(item) as source, pq.ParquetFile(source, pre_buffer=is_in_bucket(item.at)) as file:
        footer = file.metadata
        rows = sum(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
        if rows != footer.num_rows:
            raise pa.ArrowInvalid(f"the file has {footer.num_rows} rows, its row groups have {rows}")
        _check_names(file.schema_arrow)
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
            _check_names(file.schema)
            yield file.schema, (file.get_batch(number) for number in range(file.num_record_batches))
        else:
            stream = pa.ipc.open_stream(source)
            _check_names(stream.schema)
            yield stream.schema, _whole_stream(stream, source, item.size)


def _check_names(schema: pa.Schema) -> None:
    """Decode all names now: Arrow does it when they are first asked for, when the file is closed."""
    for field in schema:
        str(field.name), str(field.type)


def _whole_stream(stream: Any, source: Any, size: int) -> Iterator[pa.RecordBatch]:
    """The batches of a stream that ends where its file does."""
    yield from stream
    if source.tell() != size:
        raise pa.ArrowInvalid(f"the stream ends at byte {source.tell()} of {size}")


@contextmanager
def _random_access(item: Item) -> Iterator[Any]:
    """A file to read columns from; a name in it that is no text is an error like any other damage."""
    try:
        with _open_table(item) as source:
            yield source
    except UnicodeDecodeError as failure:
        raise BadRequest(
            f"cannot read '{item.file}': a name in it is not UTF-8", remedy="check the file"
        ) from failure


@contextmanager
def _open_table(item: Item) -> Iterator[Any]:
    with open_item(item) as stream:
        if not is_in_bucket(item.at):
            stream.close()
            # Not mapped into memory: rows must stay what was checked, even if the file changes meanwhile.
            with pa.OSFile(item.at) as file:
                yield file
            return
        yield pa.PythonFile(stream, mode="r")
