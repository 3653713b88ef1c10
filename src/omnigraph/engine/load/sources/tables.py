"""Rows in memory as input of a load: dictionaries, pandas, polars, and whatever gives a stream of Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.errors import BadRequest
from omnigraph.lang.values import legible


def is_table(data: object) -> bool:
    """Whether an input is rows and not the name of a file."""
    return hasattr(data, "__arrow_c_stream__") or isinstance(data, pa.RecordBatch) or _is_rows(data)


def _is_rows(data: object) -> bool:
    """Whether an input is a list of dictionaries, one for each row."""
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(row, Mapping) for row in data)


def as_arrow(data: Any) -> pa.Table | pa.RecordBatchReader:
    """The rows as Arrow; those of a stream can be read once."""
    if isinstance(data, pa.Table | pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if type(data).__module__.startswith("pandas."):
            # An index is a place and no property, unless the user makes a column of it.
            return pa.Table.from_pandas(data, preserve_index=False)
        if _is_rows(data):
            names = dict.fromkeys(name for row in data for name in row)
            return pa.table({name: _column(name, data) for name in names})
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as failure:
        raise BadRequest(f"these rows cannot be read as Arrow: {_reason(failure)}") from failure


def _column(name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    try:
        return pa.array([row.get(name) for row in rows])
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
        raise BadRequest(
            f"the values of '{legible(str(name))}' do not fit together: {_reason(failure)}",
            remedy="give all rows values of one type",
        ) from failure


def _reason(failure: Exception) -> str:
    return str(failure).partition("\n")[0]
