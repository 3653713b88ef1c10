"""Rows in memory as input of a load: dictionaries, pandas, polars, and whatever gives a stream of Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from omnigraph.engine.load.sources.spark_source import SparkSource
from omnigraph.errors import BadRequest
from omnigraph.lang.values import shorten_legibly

Form = type[int] | type[float]


def is_table(data: object) -> bool:
    """Whether an input is rows and not the name of a file."""
    return (
        hasattr(data, "__arrow_c_stream__")
        or isinstance(data, pa.RecordBatch | SparkSource)
        or _is_rows(data)
    )


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
            return _from_pandas(data)
        if _is_rows(data):
            names = dict.fromkeys(name for row in data for name in row)
            return pa.table({name: _column(name, [row.get(name) for row in data]) for name in names})
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
        raise BadRequest(f"these rows cannot be read as Arrow: {_reason(failure)}") from failure


def _from_pandas(data: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(data, preserve_index=False)
    except (OverflowError, pa.ArrowInvalid):
        # A column of Python integers, because one of them is missing or large.
        columns = {
            name: _column(name, column.astype(object).where(column.notna(), None).tolist())
            if column.dtype == object
            else pa.array(column, from_pandas=True)
            for name, column in data.items()
        }
        return pa.table(columns)


def _column(name: object, values: Sequence[object]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as failure:
        large = _large_integers(name, values)
        if large is not None:
            return large
        raise BadRequest(
            f"the values of '{shorten_legibly(str(name))}' do not fit together: {_reason(failure)}",
            remedy="give all rows values of one type",
        ) from failure


def _large_integers(name: object, values: Sequence[object]) -> pa.Array | None:
    """Numbers, or lists of them, of which Arrow does not guess the type: over 2**63 it expects no integer."""
    present = [value for value in values if value is not None]
    lists = bool(present) and all(isinstance(value, list | tuple) for value in present)
    items = [item for value in present for item in value] if lists else present  # type: ignore[attr-defined]
    numbers = [item for item in items if item is not None]
    if not numbers or not all(type(number) in (int, float) for number in numbers):
        return None
    integers = [number for number in numbers if type(number) is int]
    wide = next((one for one in integers if not -(2**63) <= one < 2**64), None)
    if wide is not None:
        raise BadRequest(
            f"the value {shorten_legibly(str(wide))} of '{shorten_legibly(str(name))}' "
            "does not fit into 64 bits",
            remedy="U64 holds 0 to 18446744073709551615, and I64 the whole numbers from -2^63 to 2^63 - 1",
        )
    if len(integers) < len(numbers):
        if any(float(one) != one for one in integers):
            return None
        kind, form = pa.float64(), cast(Form, float)
    elif min(integers) >= 0:
        kind, form = pa.uint64(), cast(Form, int)
    else:
        raise BadRequest(
            f"'{shorten_legibly(str(name))}' has both {min(integers)} and {max(integers)}, "
            "and no type of integers holds both",
            remedy="U64 has no values below 0, and I64 none over 9223372036854775807",
        )
    formed = [_formed(value, form) for value in values]
    return pa.array(formed, pa.list_(kind) if lists else kind)


def _formed(value: Any, form: Form) -> Any:
    if isinstance(value, list | tuple):
        return [_formed(item, form) for item in value]
    return None if value is None else form(value)


def _reason(failure: Exception) -> str:
    return str(failure).partition("\n")[0]
