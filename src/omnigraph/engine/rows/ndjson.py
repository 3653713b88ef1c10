"""Strict NDJSON: the lines of a split -> records by type, and what is wrong with the others.

Almost every line of a real file is well-formed and begins like many others, so lines of one type are first
compared with each other (`uniform_lines.py`), and those that are not written alike are decoded together
(`TypeDecoder` in `lines.py`). What is left is decoded line by line in one typed step, and only a line that
fails there is looked at closely: that alone decides what is wrong, and says it. Decoders keep the last of two
members with one name without a word; an object without repeats has as many members as the line has colons
outside of texts, which is quick to count.

Each step but the last is there for speed alone. CPU time of a load of a million rows without one of them,
against all of them, interleaved: without comparing lines 2.0 times where a program wrote them; without
decoding them together 1.4 times where members vary; without the typed step 3.7 times where the type is not
the first member.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, NoReturn

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import FROM, SOURCE, TARGET, TO
from omnigraph.engine.rows.lines import UNDECODABLE, Limits, Lines, Split, make_decoder, oversized_line_remedy
from omnigraph.engine.rows.records import RawColumns, TypeRecords, columns_from_records, concat_in_line_order
from omnigraph.engine.rows.uniform_lines import read_uniform_lines
from omnigraph.engine.rows.violations import Numbers, Violation
from omnigraph.errors import ResourceLimitExceeded
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.types import INTEGERS, ValueType
from omnigraph.lang.values import shorten_legibly

RESERVED = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
        "_tombstone",
    }
)
"""Names of the storage, never of the user."""

_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+(?:"|\Z)')
"""One that does not end goes to the end of the line, and nothing is looked at twice."""
_HEAD = re.compile(rb'\{[ \t\r]*"(type|edge)"[ \t\r]*:[ \t\r]*"([!#-\[\]-~]+)"')
"""How a record begins that says first of which type it is."""
_SHORTEST = len('{"type":"T"}')
_FIRST_TRIES = 16
_BLANK = b" \t\r"
_SPACE = _BLANK + b"\n"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_ALLOWED = {"type": ("type", "data"), "edge": ("edge", "from", "to", "data")}
_NO_DATA: dict[str, Any] = {}
_LARGEST_WHOLE_FLOAT = 2**53
"""From here on a float stands for several integers."""


@dataclass(frozen=True, slots=True)
class ParsedSplit:
    """What the lines of a split say."""

    records: tuple[TypeRecords, ...]
    """By table."""
    violations: tuple[Violation, ...]
    """In input order."""
    lines: int
    """How many lines the split has."""


class _Line(msgspec.Struct, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    type: str | UnsetType = UNSET
    edge: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    target: str | UnsetType = UNSET
    data: dict[str, Any] | UnsetType = UNSET


@dataclass(slots=True)
class _Group:
    key: str
    is_edge: bool
    properties: Mapping[str, ValueType]
    raw: list[RawColumns] = field(default_factory=list)
    """What was decoded together; the rest is of single lines."""
    numbers: list[int] = field(default_factory=list)
    data: list[Mapping[str, Any]] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    targets: list[str | None] = field(default_factory=list)


class _BadLine(Exception):
    """Why a line is not a record."""


class _Repeated(Exception):
    """The name of a member that an object has twice."""


def parse_split(
    split: Split, catalog: Catalog, limits: Limits | None = None, *, patches: bool = False
) -> ParsedSplit:
    """The records of a split; those of `patches` may omit the ends of edges, and keep what they have."""
    data = split.data
    # Blank lines before the first record and after the last are counted without a look at each of them.
    begin = data.rfind(b"\n", 0, len(data) - len(data.lstrip(_SPACE))) + 1
    last = data.find(b"\n", len(data.rstrip(_SPACE)))
    end = len(data) if last < 0 else max(begin, last + 1)
    before, after = (
        data.count(b"\n", 0, begin),
        data.count(b"\n", end) + (end < len(data) and data[-1:] != b"\n"),
    )
    kept = Split(
        split.file,
        data[begin:end],
        split.file_number,
        split.first_line + before,
        split.offset + begin,
        split.table,
    )
    parsed = _read_lines(kept, catalog, limits or Limits(), patches=patches)
    return replace(parsed, lines=parsed.lines + before + after)


def _read_lines(split: Split, catalog: Catalog, limits: Limits, *, patches: bool) -> ParsedSplit:
    lines = Lines(split.data)
    _check_limits(split, lines, limits)
    reader = LineReader(split, catalog, patches=patches)
    if split.table is None:
        reader.read_singly(lines, reader.read_together(lines))
    else:
        reader.read_rows(lines, split.table)
    return reader.parsed(lines)


def _check_limits(split: Split, lines: Lines, limits: Limits) -> None:
    longest = int(lines.sizes.max(initial=0))
    if longest > limits.line_bytes:
        raise ResourceLimitExceeded(
            "graph_batch_line_bytes",
            limit=limits.line_bytes,
            actual=longest,
            remedy=oversized_line_remedy(split.file, split.offset + int(lines.starts[lines.sizes.argmax()])),
        )
    for number in np.flatnonzero(lines.sizes > limits.structural_slots).tolist():
        bare = _TEXTS.sub(b"", lines.line(number))
        slots = sum(bare.count(char) for char in (b"{", b"}", b"[", b"]", b":", b","))
        if slots > limits.structural_slots:
            raise ResourceLimitExceeded(
                "graph_batch_json_structural_slots",
                limit=limits.structural_slots,
                actual=slots,
                remedy=oversized_line_remedy(split.file, split.offset + int(lines.starts[number])),
            )


class LineReader:
    """Sorts lines into groups by type."""

    def __init__(self, split: Split, catalog: Catalog, *, patches: bool = False) -> None:
        self.split = split
        self._patches = patches
        self.violations: list[Violation] = []
        self._catalog = catalog
        self._groups: dict[str, _Group] = {}
        self._nodes = {name: self._group_of(f"node:{name}", node) for name, node in catalog.nodes.items()}
        self._edges: dict[str, _Group | None] = {}

    def read_together(self, lines: Lines) -> Numbers:
        """Take all lines that are beyond doubt; the numbers of the others, without blank ones."""
        short = lines.sizes < _SHORTEST
        blank = lines.blank()
        rest, left = [np.flatnonzero(short & ~blank)], np.flatnonzero(~short & ~blank)
        # Every line that begins like no other costs a look at all that are left.
        for _ in range(_FIRST_TRIES + 2 * (len(self._nodes) + len(self._catalog.edges))):
            if not left.size:
                break
            first = int(left[0])
            head = _HEAD.match(lines.data, int(lines.starts[first]), int(lines.ends[first]))
            group = None if head is None else self._group_by_name(head[1].decode(), head[2].decode())
            if head is None or group is None:
                rest.append(left[:1])
                left = left[1:]
                continue
            same = lines.beginning_with(head[0], left)
            raw, others = read_uniform_lines(
                lines, left[same], group.properties, is_edge=group.is_edge, known=len(head[0])
            )
            group.raw += raw
            left = left[~same]
            if self._patches:
                # A decoder of many lines does not say which members a record has.
                rest.append(others)
                continue
            decoder = make_decoder(tuple(group.properties), is_edge=group.is_edge)
            raw, doubtful = decoder.read(lines, others)
            group.raw += raw
            rest += doubtful
        return np.sort(np.concatenate([*rest, left]))

    def read_singly(self, lines: Lines, numbers: Numbers) -> None:
        """Take or refuse lines one by one."""
        decode = msgspec.json.Decoder(_Line).decode
        for number in numbers.tolist():
            line = lines.line(number)
            try:
                record = decode(line)
            except UNDECODABLE:
                self._read_closely(number, line)
                continue
            if not self._take_record(number, line, record):
                self._read_closely(number, line)

    def read_rows(self, lines: Lines, key: str) -> None:
        """Take or refuse lines that hold the properties of one type, and the ends of edges."""
        kind, _, name = key.partition(":")
        group = self._group_by_name("type" if kind == "node" else kind, name)
        assert group is not None, "a load of rows names a type that exists"
        whole = [each for each, type_ in group.properties.items() if type_.scalar in INTEGERS]
        for number in np.flatnonzero(~lines.blank()).tolist():
            place = self.split.first_line + number
            try:
                record = _strict_json(lines.line(number), place)
                if not isinstance(record, dict):
                    _refuse_at(place, "a row must be one JSON object")
                ends = _take_ends(record, group, place, optional=self._patches) if group.is_edge else ()
            except _BadLine as wrong:
                self.violations.append(Violation(self.split.file, place, None, str(wrong)))
                continue
            _make_whole(record, whole)
            group.numbers.append(number)
            group.data.append(record)
            group.sources += ends[:1]
            group.targets += ends[1:]

    def parsed(self, lines: Lines) -> ParsedSplit:
        """What all lines raw."""
        return ParsedSplit(tuple(self._collect_records(lines)), tuple(self.violations), len(lines))

    def _collect_records(self, lines: Lines) -> Iterator[TypeRecords]:
        split = self.split
        for key in sorted(self._groups):
            group = self._groups[key]
            parts = group.raw
            if group.numbers:
                numbers = np.array(group.numbers, np.int64)
                single = columns_from_records(
                    group.data,
                    tuple(group.properties),
                    numbers,
                    group.sources,
                    group.targets,
                    patches=self._patches,
                )
                parts = [*parts, single]
            if not parts:
                continue
            raw = concat_in_line_order(parts)
            place = raw.numbers + split.first_line, lines.starts[raw.numbers] + split.offset
            yield TypeRecords(key, raw, *place, split.file, split.file_number)

    def _take_record(self, number: int, line: bytes, record: _Line) -> bool:
        """Whether a decoded line is a record without any flaw; it is then in its group."""
        if record.data is UNSET:
            data, members = _NO_DATA, 1
        else:
            data, members = record.data, 2 + len(record.data)
        source, target = record.source, record.target
        if record.edge is UNSET:
            group = None if record.type is UNSET else self._nodes.get(record.type)
            if group is None or source is not UNSET or target is not UNSET:
                return False
        else:
            members += (source is not UNSET) + (target is not UNSET)
            group = self._edge_group(record.edge)
            if group is None or record.type is not UNSET or SOURCE in data or TARGET in data:
                return False
        if line.count(b":") != members and _TEXTS.sub(b"", line).count(b":") != members:
            return False
        if group.is_edge:
            if (source is UNSET or target is UNSET) and not self._patches:
                return False
            group.sources.append(None if source is UNSET else source)
            group.targets.append(None if target is UNSET else target)
        group.numbers.append(number)
        group.data.append(data)
        return True

    def _read_closely(self, number: int, line: bytes) -> None:
        """A line that is blank, wrong, or right in an unusual way."""
        if not line.strip(_BLANK):
            return
        place = self.split.first_line + number
        try:
            record = _strict_json(line, place)
            group, kind = self._find_group(record, place)
        except _BadLine as wrong:
            self.violations.append(Violation(self.split.file, place, None, str(wrong)))
            return
        group.numbers.append(number)
        group.data.append(record.get("data", _NO_DATA))
        if kind == "edge":
            group.sources.append(record.get("from"))
            group.targets.append(record.get("to"))

    def _find_group(self, record: object, place: int) -> tuple[_Group, str]:
        """The group a record belongs to; fails with the first thing that is wrong with it."""
        if not isinstance(record, dict):
            _refuse_at(place, "graph batch record must be one JSON object")
        kinds = [kind for kind in _ALLOWED if kind in record]
        if len(kinds) != 1:
            _refuse_at(place, "graph batch record must contain exactly one of 'type' or 'edge'")
        kind = kinds[0]
        for name in record:
            if name in RESERVED:
                _refuse_at(place, f"top-level field '{name}' is reserved physical state")
            if name not in _ALLOWED[kind]:
                _refuse_at(place, f"unknown top-level graph batch field '{shorten_legibly(name)}'")
        for name in _ALLOWED[kind]:
            if name in record or not (self._patches and name in (FROM, TO)):
                _check_member(record, name, place)
        name = record[kind]
        group = self._group_by_name(kind, name)
        if group is None:
            _refuse_at(
                place, f"unknown {'node' if kind == 'type' else 'edge'} type '{shorten_legibly(name)}'"
            )
        for reserved in (SOURCE, TARGET):
            if kind == "edge" and reserved in record.get("data", _NO_DATA):
                _refuse_at(place, f"edge data field '{reserved}' is reserved structural state")
        return group, kind

    def _group_by_name(self, kind: str, name: str) -> _Group | None:
        return self._nodes.get(name) if kind == "type" else self._edge_group(name)

    def _edge_group(self, name: str) -> _Group | None:
        try:
            return self._edges[name]
        except KeyError:
            edge = self._catalog.find_edge(name)
            found = self._edges[name] = None if edge is None else self._group_of(f"edge:{edge.name}", edge)
            return found

    def _group_of(self, key: str, owner: NodeType | EdgeType) -> _Group:
        types = {name: declared.type for name, declared in owner.properties.items()}
        new = _Group(key, isinstance(owner, EdgeType), types)
        return self._groups.setdefault(key, new)


def format_json(value: object) -> str:
    """A value as messages show it: compact JSON, not too long."""
    return shorten_legibly(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))


def _refuse_at(place: int, reason: str) -> NoReturn:
    raise _BadLine(f"line {place}: {reason}")


def _check_member(record: Mapping[str, Any], name: str, place: int) -> None:
    if name not in record:
        if name != "data":
            _refuse_at(place, f"graph batch record requires field '{name}'")
    elif not isinstance(record[name], dict if name == "data" else str):
        wanted = "an object" if name == "data" else "a string"
        _refuse_at(place, f"graph batch field '{name}' must be {wanted}, got {format_json(record[name])}")


def _take_ends(
    record: dict[str, Any], group: _Group, place: int, *, optional: bool
) -> tuple[str | None, str | None]:
    """Remove the ends of an edge from a row, and return them; they have the names that columns may have."""
    ends: list[str | None] = []
    for names in (("from", SOURCE, "source"), ("to", TARGET, "target")):
        found = next((name for name in names if name in record and name not in group.properties), None)
        if found is None:
            if optional:
                ends.append(None)
                continue
            _refuse_at(place, f"graph batch record requires field '{names[0]}'")
        value = record.pop(found)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str):
            _refuse_at(place, f"graph batch field '{names[0]}' must be a string, got {format_json(value)}")
        ends.append(value)
    return ends[0], ends[1]


def _make_whole(record: dict[str, Any], names: Sequence[str]) -> None:
    """Turn floats without a fraction into integers: frames write these where a value is missing."""
    for name in names:
        value = record.get(name)
        if type(value) is float and value.is_integer() and abs(value) <= _LARGEST_WHOLE_FLOAT:
            record[name] = int(value)


def _strict_json(line: bytes, place: int) -> Any:
    try:
        value = msgspec.json.decode(line)
        _loose_json(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = _explain_error(line, error)
    except _Repeated as repeated:
        reason = f"duplicate JSON member '{shorten_legibly(str(repeated))}'"
    else:
        return value
    raise _BadLine(f"invalid strict JSON at line {place}: {reason}")


def _explain_error(line: bytes, error: Exception) -> str:
    if line.startswith(_BYTE_ORDER_MARK):
        return "a byte-order mark is not allowed"
    if isinstance(error, UnicodeDecodeError):
        return "not valid UTF-8"
    if isinstance(error, RecursionError):
        return "nested too deeply"
    text = str(error).removeprefix("JSON is malformed: ").partition(" - at `$")[0]
    if "surrogate" in text or ("truncated" in text and _reads_loosely(line)):
        return "lone surrogate escape"
    return text[:1].lower() + text[1:]


def _reads_loosely(line: bytes) -> bool:
    """Whether a reader that keeps lone surrogates takes the line."""
    try:
        _loose_json(line)
    except (ValueError, RecursionError, _Repeated):
        return False
    return True


def _loose_json(line: bytes) -> None:
    """Fails on a member that an object has twice; numbers are not looked at."""
    json.loads(
        line.decode(),
        object_pairs_hook=_refuse_repeats,
        parse_int=_no_number,
        parse_float=_no_number,
        parse_constant=_no_constant,
    )


def _refuse_repeats(members: list[tuple[str, Any]]) -> None:
    names = set()
    for name, _ in members:
        if name in names:
            raise _Repeated(name)
        names.add(name)


def _no_number(digits: str) -> int:
    return len(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
