"""Lines that begin alike -> what their records say, many at a time.

Each type has a decoder that knows the names of its members and takes a whole text in one step. It may
only accept: a line it does not take, for whatever reason, is left to those who look at lines one by one.
Values are decoded as they would be there, so that both say the same.

A decoder that is given many lines as one text does not care where they end. That is no matter while each
line begins with `{` and ends with `}`: a line end within an object would then stand between `}` and `{`,
where JSON allows none, so that as many objects as lines means one on each.

A decoder keeps the last of two members with one name without a word. A text without repeats has as many
members as were decoded, and never fewer colons than members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET

from omnigraph.engine.graph.columns import ID
from omnigraph.engine.rows.lines import Lines, member_colons
from omnigraph.engine.rows.records import RawColumns
from omnigraph.engine.rows.violations import Numbers

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_FEW = 32
"""So many lines with a flaw among them are not worth being tried again in smaller pieces."""
_PIECES = 8


@dataclass(frozen=True, slots=True)
class TypeDecoder:
    """Reads records of one type."""

    json: msgspec.json.Decoder[Any]
    no_data: object
    """What stands for the data of a record that has none."""
    properties: tuple[str, ...]
    is_edge: bool

    def read(self, lines: Lines, numbers: Numbers) -> tuple[list[RawColumns], list[Numbers]]:
        """What lines of ascending numbers say, and the numbers of lines to look at one by one."""
        whole = lines.closed(numbers)
        found, left = [], [numbers[~whole]]
        pieces = [numbers[whole]] if whole.any() else []
        while pieces:
            piece = pieces.pop()
            text = lines.text(piece)
            objects = self._objects(text)
            if len(objects) == piece.size:
                columns, doubtful = self._read_columns(objects, piece, text, lines)
                found.append(columns)
                left.append(doubtful)
            elif piece.size > _FEW:
                pieces += np.array_split(piece, _PIECES)
            else:
                left.append(piece)
        return [columns for columns in found if columns.numbers.size], left

    def _objects(self, text: bytes) -> Sequence[Any]:
        try:
            return self.json.decode_lines(text)
        except UNDECODABLE:
            return ()

    def _read_columns(
        self, objects: Sequence[Any], numbers: Numbers, text: bytes, lines: Lines
    ) -> tuple[RawColumns, Numbers]:
        """Return the columns of the objects, and the numbers of lines that may repeat a member."""
        data = [each.data for each in objects]
        columns = {
            name: list(map(attrgetter(_field(place)), data))
            for place, name in enumerate((*self.properties, ID))
        }
        absent = {name: values.count(UNSET) for name, values in columns.items()}
        raw = RawColumns(
            numbers,
            {name: _with_nulls(columns[name], absent[name]) for name in self.properties},
            columns[ID] if absent[ID] < len(data) else None,
            [each.source for each in objects] if self.is_edge else (),
            [each.target for each in objects] if self.is_edge else (),
        )
        most = (4 if self.is_edge else 2) + len(columns)
        colons = member_colons(text)
        if colons.size == most * len(data) - data.count(self.no_data) - sum(absent.values()):
            return raw, numbers[:0]
        decoded = most - _places(data, self.no_data)
        for values in columns.values():
            decoded -= _places(values, UNSET)
        ends = np.cumsum(lines.sizes[numbers] + 1)
        written = np.bincount(np.searchsorted(ends, colons, "right"), minlength=len(data))
        return raw.filter(written == decoded), numbers[written != decoded]


def _with_nulls(values: list[Any], absent: int) -> list[Any]:
    if absent == len(values):
        return [None] * absent
    return [None if value is UNSET else value for value in values] if absent else values


def _places(values: Sequence[Any], wanted: object) -> Numbers:
    """1 where the value is this object, and 0 elsewhere."""
    return np.fromiter((value is wanted for value in values), np.int64, len(values))


@lru_cache(maxsize=1024)
def make_decoder(properties: tuple[str, ...], *, is_edge: bool) -> TypeDecoder:
    """The decoder of a type with these properties."""
    names = {_field(place): name for place, name in enumerate((*properties, ID))}
    # Instances are compared as objects, and hold nothing that could hold them.
    options: dict[str, Any] = {"forbid_unknown_fields": True, "eq": False, "gc": False}
    data = msgspec.defstruct("Data", [(field, Any, UNSET) for field in names], rename=names, **options)
    no_data = data()
    ends: tuple[tuple[str, Any], ...]
    own = ("data", data, msgspec.field(default_factory=lambda: no_data))
    if is_edge:
        ends = (("source", str), ("target", str))
        written = {"kind": "edge", "source": "from", "target": "to"}
    else:
        ends = ()
        written = {"kind": "type"}
    record = msgspec.defstruct("Record", [("kind", str), *ends, own], rename=written, **options)
    return TypeDecoder(msgspec.json.Decoder(record), no_data, properties, is_edge)


def _field(place: int) -> str:
    """A name for what may have any name in a text."""
    return f"member_{place}"
