"""Ids of rows: from their keys, or generated; a whole column at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.root import ulid
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.rows.violations import Numbers
from omnigraph.errors import InvalidValue
from omnigraph.lang.schema.keys import render_scalar
from omnigraph.lang.types import FLOATS, STRING, Scalar, ValueType

_ALPHABET = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", np.uint8)
_PAIRS = np.stack([np.repeat(_ALPHABET, 32), np.tile(_ALPHABET, 32)], axis=1).view(np.uint16).ravel()
"""Two digits at a time, as they stand in memory."""
_ULID_LENGTH = 26
_ROW = np.dtype([("common", "V18"), ("high", np.uint32), ("low", np.uint32)])
_NEEDS_ESCAPE = r'[\x00-\x1f"\\]'
_EVERY_INTEGER = {Scalar.F32: 2.0**24, Scalar.F64: 2.0**53}
"""Below this a float type has every integer, so that no shorter digits mean the same one."""
FILES_IN_GROUP = 2**16
GROUPS = 2**24
MAX_POSITION = 2**40 - 1
_FEW = 16
"""So few ids are written faster one by one than as columns."""


# --- ids from keys -------------------------------------------------------------------------------


def render_keys(column: pa.Array, type_: ValueType) -> pa.Array:
    """The texts of stored values, as `render_scalar` gives them; null for null."""
    if type_.is_list or type_.scalar in (Scalar.VECTOR, Scalar.BLOB):
        if len(column) > column.null_count:
            raise InvalidValue(f"scalar key: unsupported column type {type_}")
        return pa.nulls(len(column), pa.string())
    if type_.scalar is Scalar.DATE:
        column = column.cast(pa.int32())
    elif type_.scalar is Scalar.DATETIME:
        column = column.cast(pa.int64())
    elif type_.scalar in FLOATS:
        return _render_floats(column, type_)
    return column.cast(pa.string())


def key_ids(target: TableType, columns: Mapping[str, pa.Array]) -> pa.Array:
    """The ids of rows of a type with a key, from the columns of the key; null if one is null."""
    types = target.owner.properties
    return compose_ids(
        [
            render_keys(columns[name], types[name].type if name in types else STRING)
            for name in target.identity
        ]
    )


def compose_ids(parts: Sequence[pa.Array]) -> pa.Array:
    """The ids of rows from their rendered key values, as `compose_id` makes them; null if one is null."""
    if len(parts) == 1:
        return parts[0]
    quoted = [pc.binary_join_element_wise('"', _escape_json(part), '"', "") for part in parts]
    return pc.binary_join_element_wise("[", pc.binary_join_element_wise(*quoted, ","), "]", "")


def _render_floats(column: pa.Array, type_: ValueType) -> pa.Array:
    wide = column.cast(pa.float64())
    whole = pc.if_else(pc.less(pc.abs(wide), _EVERY_INTEGER[type_.scalar]), wide, None)
    if (
        pc.all(pc.equal(pc.trunc(whole), whole)).as_py() is not False
        and whole.null_count == column.null_count
    ):
        return wide.cast(pa.int64()).cast(pa.string())
    # Each distinct value is written once.
    coded = column.dictionary_encode()
    texts = pa.array([render_scalar(value, type_) for value in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def _escape_json(texts: pa.Array) -> pa.Array:
    """The texts as they stand between the quotes of JSON."""
    odd = pc.fill_null(pc.match_substring_regex(texts, _NEEDS_ESCAPE), False)
    if not pc.any(odd).as_py():
        return texts
    replaced = [json.dumps(text, ensure_ascii=False)[1:-1] for text in texts.filter(odd).to_pylist()]
    return pc.replace_with_mask(texts, odd, pa.array(replaced, pa.string()))


# --- generated ids -------------------------------------------------------------------------------


class IdSource(Protocol):
    """Generates the ids of records by where they stand in their files."""

    def ids(self, file_number: int | Numbers, positions: Numbers) -> pa.Array: ...


@dataclass(frozen=True, slots=True)
class LoadIds:
    """What the generated ids of one load have in common; fixed once, so that retried tasks agree."""

    milliseconds: int
    """When the load started, since 1970."""
    salt: int = field(default_factory=lambda: int.from_bytes(os.urandom(3)))
    """24 random bits."""

    def ids(self, file_number: int | Numbers, positions: Numbers) -> pa.Array:
        """The ids of records by where they stand in their file; one number for all, or one for each.

        Files are numbered in groups of 65,536, and each group has random bits of its own.
        """
        group, number = divmod(file_number, FILES_IN_GROUP)
        if not 0 <= np.min(group, initial=0) <= np.max(group, initial=0) < GROUPS:
            raise InvalidValue(f"file number {file_number} is beyond {FILES_IN_GROUP * GROUPS - 1}")
        if positions.size and not 0 <= int(positions.min()) <= int(positions.max()) <= MAX_POSITION:
            raise InvalidValue(f"position {int(positions.max())} in a file is beyond {MAX_POSITION}")
        salt = (self.salt + group) % GROUPS
        return _build_ulids(self.milliseconds, (salt << 16) | number, positions)


def generate_ids(count: int, milliseconds: int, entropy: bytes | None = None) -> pa.Array:
    """So many new ULIDs; `entropy` gives ten bytes for each."""
    drawn = entropy if entropy is not None else os.urandom(10 * count)
    if count <= _FEW:
        return pa.array([ulid(milliseconds, drawn[10 * at :][:10]) for at in range(count)], pa.string())
    bits = np.frombuffer(drawn, np.uint8)
    halves = bits.reshape(count, 2, 5).astype(np.uint64)
    weights = np.uint64(1) << np.arange(32, -1, -8, dtype=np.uint64)
    numbers = (halves * weights).sum(axis=2, dtype=np.uint64)
    return _build_ulids(milliseconds, numbers[:, 0], numbers[:, 1])


def _build_ulids(
    time: NDArray[np.uint64] | int,
    middle: NDArray[Any] | int,
    low: Numbers | NDArray[np.uint64],
) -> pa.Array:
    """48 bits of time and twice 40 bits, as 10, 8 and 8 characters."""
    count = low.size
    letters = np.empty((count, _ULID_LENGTH // 2), np.uint16)
    if isinstance(time, int) and isinstance(middle, int):
        _write_rows(letters.view(_ROW).ravel(), time, middle, low.astype(np.int64, copy=False))
    else:
        letters[:, :5] = _encode_base32(time, 5)
        letters[:, 5:9] = _encode_base32(middle, 4)
        letters[:, 9:] = _encode_base32(low, 4)
    offsets = np.arange(count + 1, dtype=np.int32) * _ULID_LENGTH
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))


def _write_rows(rows: NDArray[np.void], time: int, middle: int, low: Numbers) -> None:
    """ULIDs that differ only in their last eight digits, four of which are looked up at a time."""
    rows["common"] = np.concatenate([_encode_base32(time, 5), _encode_base32(middle, 4)]).view(
        np.dtype("V18")
    )[0]
    rows["high"] = _four_digit_table()[low >> 20]
    rows["low"] = _four_digit_table()[low & 0xFFFFF]


@cache
def _four_digit_table() -> NDArray[np.uint32]:
    """Four digits for each number of 20 bits, as they stand in memory."""
    table = np.empty((1024, 1024, 2), np.uint16)
    table[:, :, 0], table[:, :, 1] = _PAIRS[:, None], _PAIRS
    return table.view(np.uint32).ravel()


def _encode_base32(numbers: NDArray[Any] | int, pairs: int) -> NDArray[np.uint16]:
    """The last digits of numbers, two at a time."""
    shifts = np.arange(10 * (pairs - 1), -1, -10, dtype=np.uint64)
    digits = (np.asarray(numbers).astype(np.uint64)[..., None] >> shifts) & np.uint64(1023)
    found: NDArray[np.uint16] = _PAIRS[digits]
    return found
