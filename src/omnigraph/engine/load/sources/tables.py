"""Rows in memory as input of a load: Arrow, pandas, polars, and whatever gives a stream of Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from omnigraph.errors import BadRequest


def is_table(data: object) -> bool:
    """Whether an input is rows and not the name of a file."""
    return hasattr(data, "__arrow_c_stream__") or isinstance(data, pa.RecordBatch)


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
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError) as failure:
        reason = str(failure).partition("\n")[0]
        raise BadRequest(f"these rows cannot be read as Arrow: {reason}") from failure
