"""Records of one type, property by property."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, compress
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec import UNSET

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.violations import Flags, Numbers

Values: TypeAlias = Sequence[Any] | pa.Array
"""What records say in one place: as objects, or as an array of the kind that all of them are of."""


@dataclass(frozen=True, slots=True)
class RawColumns:
    """The columns of records as written, before any value is checked."""

    numbers: Numbers
    """Which lines of the split they are."""
    columns: Mapping[str, Values]
    """The values of every property of the type; None where a record has null or nothing."""
    ids: Values | None = None
    """The ids given, and UNSET where a record has none; None when no record has one."""
    sources: Values = ()
    """Where each edge starts; empty for nodes."""
    targets: Values = ()
    unknown_fields: tuple[tuple[int, str], ...] = ()
    """Members that are not properties: row and name."""
    present: Flags | None = None
    """For each record and each property whether the record has it; None where null and nothing are alike."""

    def filter(self, wanted: Flags) -> RawColumns:
        """Return some of the records; none may have unknown fields."""
        chosen = wanted.tolist()
        return RawColumns(
            self.numbers[wanted],
            {name: list(compress(values, chosen)) for name, values in self.columns.items()},
            None if self.ids is None else list(compress(self.ids, chosen)),
            list(compress(self.sources, chosen)),
            list(compress(self.targets, chosen)),
        )


@dataclass(frozen=True, slots=True)
class TypeRecords:
    """The records of one type in one split, in input order."""

    key: str
    """The table of the type."""
    raw: RawColumns
    lines: Numbers
    offsets: Numbers
    """Where each record's line begins in its file."""
    file: str
    file_number: int


def columns_from_records(
    data: Sequence[Mapping[str, Any]],
    properties: Sequence[str],
    numbers: Numbers,
    sources: Sequence[str | None] = (),
    targets: Sequence[str | None] = (),
    *,
    patches: bool = False,
) -> RawColumns:
    """Return the columns of records whose members may have any name.

    `patches` also notes which properties each record has.
    """
    used = set(chain.from_iterable(data))
    unknown_fields: Iterable[tuple[int, str]] = ()
    if odd := used - {*properties, ID}:
        unknown_fields = ((row, name) for row, members in enumerate(data) for name in members if name in odd)
    return RawColumns(
        numbers,
        {name: [members.get(name) for members in data] for name in properties},
        [members.get(ID, UNSET) for members in data] if ID in used else None,
        sources,
        targets,
        tuple(unknown_fields),
        _list_present(data, properties) if patches else None,
    )


def _list_present(data: Sequence[Mapping[str, Any]], properties: Sequence[str]) -> Flags:
    rows = [[name in members for name in properties] for members in data]
    return np.array(rows, np.bool_).reshape(len(data), len(properties))


def concat_in_line_order(parts: Sequence[RawColumns]) -> RawColumns:
    """Concatenate parts in line order."""
    if len(parts) == 1:
        return parts[0]
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers)
    given = None
    if any(part.ids is not None for part in parts):
        given = _concat_values(
            [(UNSET,) * part.numbers.size if part.ids is None else part.ids for part in parts], order
        )
    has_ends = len(parts[0].sources) > 0
    return RawColumns(
        numbers[order],
        {name: _concat_values([part.columns[name] for part in parts], order) for name in parts[0].columns},
        given,
        _concat_values([part.sources for part in parts], order) if has_ends else (),
        _concat_values([part.targets for part in parts], order) if has_ends else (),
        _renumber_unknown_fields(parts, order),
        _concat_present(parts, order),
    )


def _concat_present(parts: Sequence[RawColumns], order: Numbers) -> Flags | None:
    present = [part.present for part in parts if part.present is not None]
    return np.concatenate(present)[order] if len(present) == len(parts) else None


def _concat_values(values: Sequence[Values], order: Numbers) -> Values:
    """The values of several parts, put in order: as an array where all are arrays of one kind."""
    arrays = [part for part in values if isinstance(part, pa.Array)]
    kinds = {part.type for part in arrays} - {pa.null()}
    if len(arrays) == len(values) and len(kinds) < 2:
        kind = kinds.pop() if kinds else pa.null()
        return pa.concat_arrays([part.cast(kind) for part in arrays]).take(pa.array(order))
    objects = tuple(chain.from_iterable(to_objects(part) for part in values))
    return itemgetter(*order.tolist())(objects)  # two or more


def to_objects(values: Values) -> Sequence[Any]:
    """Return values as Python objects."""
    return values.to_pylist() if isinstance(values, pa.Array) else values


def _renumber_unknown_fields(parts: Sequence[RawColumns], order: Numbers) -> tuple[tuple[int, str], ...]:
    place = np.argsort(order)
    first = np.cumsum([0, *(part.numbers.size for part in parts)])
    return tuple(
        (int(place[begin + row]), name)
        for begin, part in zip(first.tolist(), parts, strict=False)
        for row, name in part.unknown_fields
    )
