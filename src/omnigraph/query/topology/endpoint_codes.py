"""Ids at the ends of edges as small numbers: equal ids have equal codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.frame import NO_ROW

Codes = NDArray[np.int32]

_MOST_DIGITS = 18  # more could leave the range of 64 bits
_SPREAD = 8  # numbers up to so many times their count are looked up in a table
_SPARSE = 2  # nodes for each one that has edges, up to which all of them get a code
_ZERO, _NINE = ord("0"), ord("9")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Ids by code, and the codes of each column that was encoded; a missing id has NO_ROW."""

    ids: pa.Array
    columns: tuple[Codes, ...]


def encode_endpoints(*columns: pa.ChunkedArray) -> Encoded:
    """Encode columns of ids with one dictionary."""
    numbers = [_parse_numbers(column) for column in columns]
    if all(found is not None for found in numbers):
        ids, codes = _number_codes(np.concatenate([found for found in numbers if found is not None]))
    else:
        ids, codes = _text_codes(columns)
    cuts = np.cumsum([len(column) for column in columns])[:-1]
    return Encoded(ids, tuple(np.split(codes, cuts)))


def _text_codes(columns: tuple[pa.ChunkedArray, ...]) -> tuple[pa.Array, Codes]:
    chunks = [chunk for column in columns for chunk in column.chunks]
    made = pa.chunked_array(chunks, type=columns[0].type).dictionary_encode()
    if made.num_chunks == 0:
        return pa.array([], type=columns[0].type), np.empty(0, dtype=np.int32)
    # The chunks of one encoding share a dictionary.
    codes = [_fill_missing(chunk.indices) for chunk in made.chunks]
    return made.chunk(made.num_chunks - 1).dictionary, np.concatenate(codes)


def _fill_missing(indices: pa.Array) -> Codes:
    known = indices.fill_null(NO_ROW) if indices.null_count else indices
    return np.asarray(known.to_numpy(zero_copy_only=False), dtype=np.int32)


# --- decimal text: several times faster than hashing ------------------------------------------------


def _parse_numbers(column: pa.ChunkedArray) -> NDArray[np.int64] | None:
    """The ids as numbers when each is the plain decimal text of one, else None."""
    if column.null_count or any(not _all_digits(chunk) for chunk in column.chunks):
        return None
    values = np.asarray(column.cast(pa.int64()).to_numpy(), dtype=np.int64)
    # A leading zero makes a text longer than its number is, and nothing makes it shorter.
    return values if _count_digits(values) == _total_length(column) else None


def _all_digits(chunk: pa.Array) -> bool:
    bounds, letters = text_buffers(chunk)
    if len(bounds) < 2:
        return True
    lengths = np.diff(bounds)
    if lengths.min() < 1 or lengths.max() > _MOST_DIGITS:
        return False
    text = letters[bounds[0] : bounds[-1]]
    return bool(text.min() >= _ZERO and text.max() <= _NINE)


def text_buffers(chunk: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The offsets and the bytes of texts."""
    _, bounds, letters = chunk.buffers()
    width = np.int64 if pa.types.is_large_string(chunk.type) else np.int32
    if len(chunk) == 0 or letters is None:
        return np.zeros(len(chunk) + 1, dtype=width), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(bounds, dtype=width)[chunk.offset : chunk.offset + len(chunk) + 1]
    return offsets, np.frombuffer(letters, dtype=np.uint8)


def _total_length(column: pa.ChunkedArray) -> int:
    return sum(int(bounds[-1] - bounds[0]) for bounds, _ in map(text_buffers, column.chunks))


def _count_digits(values: NDArray[np.int64]) -> int:
    most = int(values.max()) if len(values) else 0
    longer = [int(np.count_nonzero(values >= 10**power)) for power in range(1, len(str(most)))]
    return len(values) + sum(longer)


def _number_codes(values: NDArray[np.int64]) -> tuple[pa.Array, Codes]:
    if len(values) == 0:
        return pa.array([], type=pa.string()), np.empty(0, dtype=np.int32)
    least, most = int(values.min()), int(values.max())
    if most - least > _SPREAD * len(values):
        made = pc.dictionary_encode(pa.array(values))
        return made.dictionary.cast(pa.string()), _fill_missing(made.indices)
    places = values - least
    used = np.zeros(most - least + 1, dtype=np.bool_)
    used[places] = True
    codes = np.cumsum(used, dtype=np.int32)
    codes -= 1
    return pa.array(np.flatnonzero(used) + least).cast(pa.string()), codes[places]


# --- codes that are positions -----------------------------------------------------------------------


def numbered_as(nodes: pa.Array, found: Encoded) -> Encoded:
    """The same with places among `nodes` as codes; an id that is not one of them has a code behind.

    Nodes of which few have edges keep no code: arrays by code would be mostly empty.
    """
    if len(nodes) > _SPARSE * len(found.ids):
        return found
    met = pc.index_in(found.ids, value_set=nodes.cast(found.ids.type)).fill_null(NO_ROW)
    codes = np.append(met.to_numpy(zero_copy_only=False), NO_ROW).astype(np.int32)
    strange = np.flatnonzero(codes[:-1] == NO_ROW)
    codes[strange] = len(nodes) + np.arange(len(strange))
    others = found.ids.take(pa.array(strange)).cast(nodes.type)
    ids = pa.concat_arrays([nodes, others]) if len(strange) else nodes
    return Encoded(ids, tuple(codes[column] for column in found.columns))


# --- more ids for a dictionary that exists ----------------------------------------------------------


def encoded_more(ids: pa.Array, *columns: pa.ChunkedArray) -> Encoded:
    """Encode columns with the codes of a dictionary, which grows by the ids it does not have.

    The few new ids are hashed and the dictionary is only scanned, never hashed again.
    """
    new = _as_type(ids.type, columns)
    if sum(map(len, new)) == 0:
        return Encoded(ids, tuple(np.empty(0, dtype=np.int32) for _ in new))
    fresh = _text_codes(new)
    met = pc.index_in(ids, value_set=fresh[0]).to_numpy(zero_copy_only=False)
    known = np.flatnonzero(~np.isnan(met)) if met.dtype.kind == "f" else np.arange(len(met))
    codes = np.full(len(fresh[0]), NO_ROW, dtype=np.int32)
    codes[met[known].astype(np.int64)] = known
    unknown = np.flatnonzero(codes == NO_ROW)
    codes[unknown] = len(ids) + np.arange(len(unknown))
    grown = pa.concat_arrays([ids, fresh[0].take(pa.array(unknown))]) if len(unknown) else ids
    given = np.where(fresh[1] == NO_ROW, NO_ROW, np.append(codes, NO_ROW)[fresh[1]]).astype(np.int32)
    return Encoded(grown, tuple(np.split(given, np.cumsum([len(column) for column in new])[:-1])))


def _as_type(type_: pa.DataType, columns: tuple[pa.ChunkedArray, ...]) -> tuple[pa.ChunkedArray, ...]:
    return tuple(column if column.type == type_ else column.cast(type_) for column in columns)
