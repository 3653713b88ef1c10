"""The lines of a text by their places, so that most of them need not be cut out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.records import RawColumns
from omnigraph.engine.rows.violations import Flags, Numbers

_LINE_END, _CARRIAGE_RETURN, _COLON, _CLOSING, _QUOTE, _SPACE = b'\n\r:}" '
_WORD = 8

_BEFORE_COLON = np.zeros(256, np.bool_)
"""What can stand before the colon of a member: the end of its name, or blank space."""
_BEFORE_COLON[list(b'" \t\r')] = True

_IS_BLANK = np.zeros(256, np.bool_)
_IS_BLANK[list(b" \t\r")] = True


class Lines:
    """Where the lines of a text begin and end; the last one may lack its line end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._bytes = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(self._bytes == _LINE_END)
        if data and data[-1] != _LINE_END:
            ends = np.append(ends, len(data))
        self.ends: Numbers = ends
        """Without the line end."""
        self.starts: Numbers = np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends

    def __len__(self) -> int:
        return int(self.ends.size)

    @cached_property
    def sizes(self) -> Numbers:
        """How many bytes each line has without its line end."""
        return self.ends - self.starts

    def blank(self) -> Flags:
        """Which lines hold nothing but spaces, tabs and carriage returns."""
        found: Flags = self.sizes == 0
        begun = np.flatnonzero(~found)
        begun = begun[_IS_BLANK[self._bytes[self.starts[begun]]]]
        if begun.size:
            # A line is blank when as many bytes of the whole text are not blank before it as up to its end.
            solid = np.concatenate(([0], np.cumsum(~_IS_BLANK[self._bytes], dtype=np.int64)))
            found[begun] = solid[self.ends[begun]] == solid[self.starts[begun]]
        return found

    def line(self, number: int) -> bytes:
        """A line without its line end."""
        return self.data[self.starts[number] : self.ends[number]]

    def text(self, numbers: Numbers) -> bytes:
        """The lines of ascending numbers as one text."""
        if numbers.size == len(self):
            return self.data
        last = np.flatnonzero(np.diff(numbers) != 1)
        begin = self.starts[numbers[np.concatenate(([0], last + 1))]]
        end = self.ends[numbers[np.append(last, -1)]] + 1
        return b"".join(map(self.data.__getitem__, map(slice, begin.tolist(), end.tolist())))

    def beginning_with(self, head: bytes, numbers: Numbers) -> Flags:
        """Which of the lines begin with these bytes, of which there are eight or more."""
        found: Flags = self.sizes[numbers] >= len(head)
        found &= self.having(head, self.starts[numbers])
        return found

    def closed(self, numbers: Numbers) -> Flags:
        """Which of the lines end in a brace, as objects do."""
        last = self.ends[numbers] - 1
        last -= self._bytes[last] == _CARRIAGE_RETURN
        found: Flags = self._bytes[last] == _CLOSING
        return found

    @cached_property
    def plain(self) -> bool:
        """Whether all is as it reads: no escapes, no control characters but those of line ends, UTF-8."""
        if b"\\" in self.data:
            return False
        controls = np.count_nonzero(self._bytes < _SPACE)
        if controls == len(self) - (self.data[-1:] != b"\n"):
            return _is_utf8(self.data)
        last = self._bytes[self.ends[self.sizes > 0] - 1]
        ends = len(self) - (self.data[-1:] != b"\n") + np.count_nonzero(last == _CARRIAGE_RETURN)
        return bool(controls == ends) and _is_utf8(self.data)

    @cached_property
    def quotes(self) -> Numbers:
        """The places of all quotation marks."""
        return np.flatnonzero(self._bytes == _QUOTE)

    @cached_property
    def quotes_each(self) -> int:
        """How many quotation marks every line has; 0 when lines differ in that."""
        each, rest = divmod(self.quotes.size, max(1, len(self)))
        if not each or rest:
            return 0
        inside = (self.quotes[::each] >= self.starts) & (self.quotes[each - 1 :: each] < self.ends)
        return each if inside.all() else 0

    @cached_property
    def _first_quotes(self) -> Numbers:
        """For each line, how many quotation marks come before it."""
        return np.searchsorted(self.quotes, self.starts)

    def having_quotes(self, count: int, numbers: Numbers) -> Numbers:
        """Those of the lines that have so many quotation marks."""
        if self.quotes_each:
            return numbers if self.quotes_each == count else numbers[:0]
        first = self._first_quotes
        found: Numbers = numbers[np.diff(first, append=self.quotes.size)[numbers] == count]
        return found

    def quote_places(self, numbers: Numbers, which: int) -> Numbers:
        """Where a quotation mark, counted within each line, stands."""
        if self.quotes_each:
            places = self.quotes[which :: self.quotes_each]
            return places if numbers.size == len(self) else places[numbers]
        return self.quotes[self._first_quotes[numbers] + which]

    def having(self, constant: bytes, places: Numbers, known: int = 0) -> Flags:
        """At which of the places these bytes stand, of which the first ones are known to."""
        size = len(constant)
        if size < _WORD:
            # The word that ends where they end, without what stands before them.
            words = self._words_at(places + (size - _WORD), 1)[0] >> np.uint64(8 * (_WORD - size))
            same: Flags = words == int.from_bytes(constant, "little")
            return same
        count = max(1, -(-(size - known) // _WORD))
        if count * _WORD <= size:
            return self._same_words(constant, places, size - count * _WORD, count)
        # Not a number of whole words: the last one begins within the one before.
        return self._same_words(constant, places, 0, size // _WORD) & self._same_words(
            constant, places, size - _WORD, 1
        )

    def _same_words(self, constant: bytes, places: Numbers, at: int, count: int) -> Flags:
        """At which of the places so many words are those of the constant, from a byte of it on."""
        wanted = np.frombuffer(constant, np.uint64, count, at)
        first, *others = self._words_at(places + at if at else places, count)
        same: Flags = first == wanted[0]
        for word, one in zip(others, wanted[1:], strict=True):
            same &= word == one
        return same

    def _words_at(self, places: Numbers, count: int) -> list[NDArray[np.uint64]]:
        """So many words from each place on; of places that are not within the text they may be anything."""
        size = count * _WORD
        last = len(self.data) - size
        if last < 0:
            return [np.zeros(places.size, np.uint64)] * count
        if places.min(initial=0) < 0 or places.max(initial=0) > last:
            places = np.clip(places, 0, last)
        # Fetching all of them at once takes no longer than fetching one.
        windows = np.ndarray((last + 1,), np.dtype((np.void, size)), self.data, strides=(1,))
        words = windows[places].view(np.uint64)
        return [words[at::count] for at in range(count)]

    def bytes_at(self, places: Numbers) -> NDArray[np.uint8]:
        """The bytes at places, all of which are within the text."""
        found: NDArray[np.uint8] = self._bytes[places]
        return found

    def texts(self, begins: Numbers, ends: Numbers) -> pa.Array:
        """The texts between places, which follow each other."""
        cuts = np.empty(2 * begins.size, np.int32)
        cuts[::2], cuts[1::2] = begins, ends
        parts = pa.StringArray.from_buffers(cuts.size - 1, pa.py_buffer(cuts), pa.py_buffer(self.data))
        return parts.take(pa.array(np.arange(0, cuts.size, 2)))


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def member_colons(text: bytes) -> NDArray[np.intp]:
    """The places of all colons that may belong to a member; some may stand within texts."""
    letters: NDArray[np.uint8] = np.frombuffer(text, np.uint8)
    colons = np.flatnonzero(letters == _COLON)
    found: NDArray[np.intp] = colons[_BEFORE_COLON[letters[colons - 1]]]
    return found


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
            objects = self._decode_objects(text)
            if len(objects) == piece.size:
                columns, doubtful = self._read_columns(objects, piece, text, lines)
                found.append(columns)
                left.append(doubtful)
            elif piece.size > _FEW:
                pieces += np.array_split(piece, _PIECES)
            else:
                left.append(piece)
        return [columns for columns in found if columns.numbers.size], left

    def _decode_objects(self, text: bytes) -> Sequence[Any]:
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
            name: list(map(attrgetter(_field_name(place)), data))
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
        decoded = most - _flag_matches(data, self.no_data)
        for values in columns.values():
            decoded -= _flag_matches(values, UNSET)
        ends = np.cumsum(lines.sizes[numbers] + 1)
        written = np.bincount(np.searchsorted(ends, colons, "right"), minlength=len(data))
        return raw.filter(written == decoded), numbers[written != decoded]


def _with_nulls(values: list[Any], absent: int) -> list[Any]:
    if absent == len(values):
        return [None] * absent
    return [None if value is UNSET else value for value in values] if absent else values


def _flag_matches(values: Sequence[Any], wanted: object) -> Numbers:
    """1 where the value is this object, and 0 elsewhere."""
    return np.fromiter((value is wanted for value in values), np.int64, len(values))


@lru_cache(maxsize=1024)
def make_decoder(properties: tuple[str, ...], *, is_edge: bool) -> TypeDecoder:
    """The decoder of a type with these properties."""
    names = {_field_name(place): name for place, name in enumerate((*properties, ID))}
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


def _field_name(place: int) -> str:
    """A name for what may have any name in a text."""
    return f"member_{place}"


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a line may be."""

    line_bytes: int = 32 * 2**20
    structural_slots: int = 131_072
    """Braces, brackets, commas and colons outside of texts."""


@dataclass(frozen=True, slots=True)
class Split:
    """Whole lines of one file."""

    file: str
    """The file as the user named it."""
    data: bytes
    file_number: int = 0
    """Its place among the files of the load."""
    first_line: int = 1
    offset: int = 0
    """Where the data begins in the file, decompressed."""
    table: str | None = None
    """The table of all rows, where a line holds properties alone and no type."""


def oversized_line_remedy(file: str, begin: int) -> str:
    """Return the remedy for a line that is too large; by byte, as a split does not know its line number."""
    return f"make the record smaller whose line begins at byte {begin} of '{file}'"


class Readable(Protocol):
    """Anything that gives bytes."""

    def read(self, size: int, /) -> bytes: ...
