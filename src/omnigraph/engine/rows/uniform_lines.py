"""Lines that differ only in their values -> columns, without an object for any of them.

Programs write the records of a type in one way: the same members in the same order, with the same space
between them. What stands between the values of one line is then what stands between those of the others, and
comparing that also finds where the values are.

Nothing but acceptance comes of it. A line that is written in another way, and every line whose values may be
anything but plain texts, numbers, `true`, `false` and `null`, is left to those who decode it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.engine.rows.lines import Lines
from omnigraph.engine.rows.lookup import text_buffers
from omnigraph.engine.rows.records import RawColumns
from omnigraph.engine.rows.violations import Flags, Numbers
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType

_NULL, _MINUS, _POINT, _ZERO, _NINE = b"n-.09"
_NUMBER = r"^-?(0|[1-9][0-9]*)([.][0-9]+)?([eE][+-]?[0-9]+)?$"
_WHOLE = r"^-?[0-9]+$"
_EXACT_DIGITS = 15
"""Integers of no more digits are floats without loss."""

_IN_NUMBERS = np.zeros(256, np.bool_)
"""What nearly all numbers consist of."""
_IN_NUMBERS[list(b"-.0123456789")] = True


def read_literals(lines: Lines, begins: Numbers, ends: Numbers, type_: ValueType) -> pa.Array | None:
    """The values between places, none of them empty; None when one of them may be wrong."""
    first = lines.bytes_at(begins) == _NULL
    if first.any():
        return _with_nulls(lines, begins, ends, type_, first)
    if type_.is_list:
        return None
    if type_.scalar is Scalar.BOOL:
        return _parse_flags(lines, begins, ends)
    try:
        if type_.scalar in INTEGERS:
            return _Written(lines, begins, ends).integers()
        return _Written(lines, begins, ends).floats() if type_.scalar in FLOATS else None
    except pa.ArrowInvalid:
        return None


def _with_nulls(
    lines: Lines, begins: Numbers, ends: Numbers, type_: ValueType, maybe: Flags
) -> pa.Array | None:
    nothing = lines.having(b"null", begins) & (ends - begins == len("null"))
    if (maybe != nothing).any():
        return None
    if nothing.all():
        return pa.nulls(begins.size)
    found = read_literals(lines, begins[~nothing], ends[~nothing], type_)
    return None if found is None else found.take(pa.array(np.cumsum(~nothing) - 1, mask=nothing))


def _parse_flags(lines: Lines, begins: Numbers, ends: Numbers) -> pa.Array | None:
    sizes = ends - begins
    true = lines.having(b"true", begins) & (sizes == len("true"))
    false = lines.having(b"false", begins) & (sizes == len("false"))
    return pa.array(true) if (true | false).all() else None


class _Written:
    """Values that may be numbers, and how they begin."""

    def __init__(self, lines: Lines, begins: Numbers, ends: Numbers) -> None:
        self._texts = lines.texts(begins, ends)
        self._sizes = ends - begins
        self._negative = lines.bytes_at(begins) == _MINUS
        unsigned = begins + self._negative
        self._digit = lines.bytes_at(unsigned)
        self._zero = self._digit == _ZERO
        self._second = unsigned[self._zero & (self._sizes - self._negative > 1)] + 1
        """What follows a zero."""
        self._lines = lines
        self._last = ends - 1

    def integers(self) -> pa.Array | None:
        """Only as they are usually written: `-0` and what has leading zeros is not, which Arrow takes."""
        if self._second.size or (self._zero & self._negative).any():
            return None
        return self._texts.cast(pa.int64())

    def floats(self) -> pa.Array | None:
        texts = self._texts
        if not self._is_plain() and not _are_all_true(pc.match_substring_regex(texts, _NUMBER)):
            return None
        # Integers are read as such: without a sign of zero, and in all their digits.
        odd = (self._sizes > _EXACT_DIGITS) | (self._zero & self._negative & (self._sizes == len("-0")))
        if odd.any() and pc.any(pc.match_substring_regex(texts.filter(pa.array(odd)), _WHOLE)).as_py():
            return None
        found = texts.cast(pa.float64())
        return found if _are_all_true(pc.is_finite(found)) else None

    def _is_plain(self) -> bool:
        """Whether whatever Arrow takes of these texts is written as JSON wants numbers to be."""
        letters, _ = text_buffers(self._texts)
        return bool(
            _IN_NUMBERS[letters].all()
            and _are_digits(self._digit)
            and _are_digits(self._lines.bytes_at(self._last))
            and (self._lines.bytes_at(self._second) == _POINT).all()
        )


def _are_digits(letters: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> bool:
    return bool(((letters >= _ZERO) & (letters <= _NINE)).all())


def _are_all_true(flags: pa.Array) -> bool:
    """Whether a flag is set wherever there is one."""
    return pc.all(flags).as_py() is not False


_FEWEST = 16
"""So many lines are worth being looked at together."""
_LAYOUTS = 4
_SHARE = 8
"""A layout that fewer than one line in so many has is not looked for again."""

_MEMBER = re.compile(rb'"([^"]*)" *: *(?:"([^"]*)"|([-+.0-9A-Za-z]+)|(\{ *))')
_OPENING, _NEXT, _CLOSING = re.compile(rb"\{ *"), re.compile(rb" *, *"), re.compile(rb" *\}")
_ENDS = {b"from": SOURCE, b"to": TARGET}


@dataclass(frozen=True, slots=True)
class _Value:
    """What differs from line to line."""

    becomes: str
    """A property, `id`, `src` or `dst`."""
    is_text: bool


@dataclass(frozen=True)
class Layout:
    """How a line is written: what is the same in all lines like it, and the values in between."""

    constants: tuple[bytes, ...]
    values: tuple[_Value, ...]
    """One less than there are constants."""

    @cached_property
    def quotes(self) -> tuple[int, ...]:
        """How many quotation marks stand before each constant, and at last how many there are."""
        return tuple(np.cumsum([0, *(one.count(b'"') for one in self.constants)]).tolist())

    def places(self, lines: Lines, numbers: Numbers, known: int) -> tuple[Numbers, list[Numbers]]:
        """Those of the lines that are written like this, and where each constant begins in them.

        So many bytes are known to be the same in all of them.
        """
        numbers = lines.having_quotes(self.quotes[-1], numbers)
        begins: list[Numbers] = []
        same = np.ones(numbers.size, np.bool_)
        for place, constant in enumerate(self.constants):
            at = constant.find(b'"')
            if place == 0:
                begin = lines.starts[numbers]
            elif at < 0:
                begin = lines.ends[numbers] - len(constant)
            else:
                begin = lines.quote_places(numbers, self.quotes[place]) - at
            same &= lines.having(constant, begin, 0 if place else known)
            if place:
                # No value is shorter than it can be, so that each constant begins behind the one before.
                same &= begin - begins[-1] >= len(self.constants[place - 1]) + self._least_size(place - 1)
            begins.append(begin)
        same &= begins[-1] + len(self.constants[-1]) == lines.ends[numbers]
        if same.all():
            return numbers, begins
        return numbers[same], [begin[same] for begin in begins]

    def _least_size(self, value: int) -> int:
        return 0 if self.values[value].is_text else 1


def read_uniform_lines(
    lines: Lines, numbers: Numbers, properties: Mapping[str, ValueType], *, is_edge: bool, known: int = 0
) -> tuple[list[RawColumns], Numbers]:
    """What lines of ascending numbers, all of one type, say; and the numbers of those that are left.

    The first bytes, so many as are `known`, are the same in all lines.
    """
    found: list[RawColumns] = []
    for _ in range(_LAYOUTS):
        if numbers.size < _FEWEST or not lines.plain:
            break
        layout = parse_layout(lines.line(int(numbers[numbers.size // 2])), properties, is_edge=is_edge)
        if layout is None:
            break
        same, begins = layout.places(lines, numbers, known)
        said = (
            _read_columns(layout, lines, same, begins, properties)
            if same.size >= numbers.size // _SHARE
            else None
        )
        if said is None:
            break
        found.append(said)
        numbers = (
            numbers[:0] if same.size == numbers.size else np.setdiff1d(numbers, same, assume_unique=True)
        )
    return found, numbers


def parse_layout(line: bytes, properties: Mapping[str, ValueType], *, is_edge: bool) -> Layout | None:
    """How a plain line is written that begins with its type; None when it is no record of plain values."""
    reading = _LayoutParser(line, properties, is_edge)
    return reading.layout() if reading.record() else None


class _LayoutParser:
    """Goes through the members of one record."""

    def __init__(self, line: bytes, properties: Mapping[str, ValueType], is_edge: bool) -> None:
        self._line = line
        self._properties = properties
        self._is_edge = is_edge
        self._at = 0
        self._spans: list[tuple[int, int]] = []
        self._values: list[_Value] = []
        self._names: set[tuple[bool, bytes]] = set()

    def layout(self) -> Layout:
        cuts = [0, *(place for span in self._spans for place in span), len(self._line)]
        constants = (self._line[begin:end] for begin, end in zip(cuts[::2], cuts[1::2], strict=True))
        return Layout(tuple(constants), tuple(self._values))

    def record(self) -> bool:
        kind = b"edge" if self._is_edge else b"type"
        wanted = {kind, *_ENDS} if self._is_edge else {kind}
        if not self._skip_pattern(_OPENING):
            return False
        while self._take_envelope(kind):
            if self._skip_pattern(_NEXT):
                continue
            named = {name for inside, name in self._names if not inside}
            return (
                self._skip_pattern(_CLOSING) and not self._line[self._at :].strip(b" \r") and wanted <= named
            )
        return False

    def _take_envelope(self, kind: bytes) -> bool:
        """Take a member of the record itself."""
        found = _MEMBER.match(self._line, self._at)
        if found is None or not self._is_new(found[1], inside=False):
            return False
        self._at = found.end()
        if found[1] == kind:
            return found[2] is not None
        if found[1] == b"data" and found[4]:
            return self._take_data()
        if not self._is_edge or found[1] not in _ENDS or found[2] is None:
            return False
        return self._take_value(_ENDS[found[1]], found)

    def _take_data(self) -> bool:
        """Take the properties."""
        if self._skip_pattern(_CLOSING):
            return True
        while (found := _MEMBER.match(self._line, self._at)) is not None:
            name = found[1].decode()
            if name not in self._properties and name != ID:
                return False
            self._at = found.end()
            if found[4] or not self._is_new(found[1], inside=True) or not self._take_value(name, found):
                return False
            if not self._skip_pattern(_NEXT):
                return self._skip_pattern(_CLOSING)
        return False

    def _take_value(self, becomes: str, found: re.Match[bytes]) -> bool:
        is_text = found[2] is not None
        self._spans.append(found.span(2 if is_text else 3))
        self._values.append(_Value(becomes, is_text))
        return is_text or becomes in self._properties

    def _is_new(self, name: bytes, *, inside: bool) -> bool:
        new = (inside, name) not in self._names
        self._names.add((inside, name))
        return new

    def _skip_pattern(self, what: re.Pattern[bytes]) -> bool:
        found = what.match(self._line, self._at)
        if found is None:
            return False
        self._at = found.end()
        return True


# --- values --------------------------------------------------------------------------------------


def _read_columns(
    layout: Layout, lines: Lines, numbers: Numbers, begins: list[Numbers], properties: Mapping[str, ValueType]
) -> RawColumns | None:
    """What lines of one layout say; None when a value is not beyond doubt."""
    columns: dict[str, pa.Array] = {}
    for place, value in enumerate(layout.values):
        begin, end = begins[place] + len(layout.constants[place]), begins[place + 1]
        if value.is_text:
            column = lines.texts(begin, end)
        else:
            column = read_literals(lines, begin, end, properties[value.becomes])
        if column is None:
            return None
        columns[value.becomes] = column
    absent, shape = pa.nulls(numbers.size), (numbers.size, len(properties))
    return RawColumns(
        numbers,
        {name: columns.get(name, absent) for name in properties},
        columns.get(ID) if ID not in properties else None,
        columns.get(SOURCE, ()),
        columns.get(TARGET, ()),
        present=np.broadcast_to(np.array([name in columns for name in properties], np.bool_), shape),
    )
