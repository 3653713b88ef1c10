"""Lines read many at a time: the same rows and the same complaints as line by line."""

from __future__ import annotations

import gc
from itertools import zip_longest
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.rows.lines import Lines, Split, TypeDecoder
from omnigraph.engine.rows.ndjson import LineReader
from omnigraph.engine.rows.row_builder import LoadReader, build_rows
from tests.engine.write.support import IDS, accept_schema

SCHEMA = """
node T {
  s: String?  b: Bool?  i: I32?  j: I64?  w: U64?  f: F32?  g: F64?  d: Date?  t: DateTime?
  v: Vector(2)?  l: [String]?  m: [I32]?  x: Blob?
}
node K { k: String @key  n: I32? }
edge Knows: T -> T { since: Date?  w: F64? }
"""
READER = LoadReader(accept_schema(SCHEMA), IDS)
GOOD = b'{"type":"T","data":{"s":"x","i":1,"f":0.5,"t":"2024-01-01T10:00:00Z"}}'

# --- texts of records, right and wrong -----------------------------------------------------------

_TEXTS = [
    *(
        b'"x"',
        b'""',
        b'"a:b"',
        b'" : "',
        b'":"',
        b'"\\":"',
        b'"{}"',
        b'"}\\n{"',
        b'"\xc3\xa9\xf0\x9f\x98\x80"',
    ),
    *(b'"\\u0000"', b'"\\ud83d\\ude00"', b'"\\ud800"', b'"a\tb"', b'"\x01"', b'"\xff"', b'"\xed\xa0\x80"'),
    *(b'"base64:YWI="', b'"base64:"', b'"base64:!"', b'"s3://b/k"', b'"x', b"'x'"),
]
_DATES = [
    *(b'"2024-01-01"', b'"2024-02-30"', b'"0000-01-01"', b'"+12024-05-01"', b'"-0043-03-15"', b'"2024-1-1"'),
    *(b'"2024-01-01T10:00:00Z"', b'"2024-01-01 10:00:00Z"', b'"2024-01-01T10:00:00.5Z"'),
    *(b'"1969-12-31T23:59:59.1239Z"', b'"1969-12-31T23:59:59.999999+00:00"', b'"2024-01-01T10:00:00"'),
    *(b'"2024-01-01T10:00:00.123456"', b'"2024-01-01T10:00:00+02:00"', b'"2024-01-01T24:00:00Z"'),
    *(b'"2024-01-01T10:00Z"', b'"2024-01-01T10:00:00+25:00"', b'"2024-01-01T10:00:00.1234567Z"'),
    *(b'"2024-01-01t10:00:00z"', b"19723", b"1704067200000", b"2147483648"),
]
_NUMBERS = [
    *(
        b"0",
        b"-0",
        b"-0.0",
        b"1",
        b"1.0",
        b"-7",
        b"0.1",
        b"1e3",
        b"1E-5",
        b"1e39",
        b"1e400",
        b"01",
        b"+1",
        b".5",
    ),
    *(b"2147483647", b"2147483648", b"9223372036854775808", b"18446744073709551616", b"9007199254740993"),
    *(b"1" + b"0" * 30, b"1" + b"0" * 310, b"NaN", b"Infinity", b"-"),
]
_OTHERS = [b"null", b"true", b"false", b"nul", b"{}", b'{"k":1}', b'{"k":1,"k":2}', b"[]", b""]
_LISTS = [
    b"[1,2]",
    b"[1.5,-0.0]",
    b"[1]",
    b'["a","b"]',
    b'["a",null]',
    b"[null]",
    b"[1,1e39]",
    b"[[1],[2]]",
    b"[1,]",
]
_ANY = [*_TEXTS, *_DATES, *_NUMBERS, *_OTHERS, *_LISTS]
_VALUES = st.sampled_from(_ANY)
_FITTING: dict[bytes, list[bytes]] = {
    b"s": _TEXTS[:11],
    b"b": [b"true", b"false"],
    b"i": [b"0", b"-0", b"1", b"-7", b"2147483647"],
    b"j": [b"0", b"9007199254740993"],
    b"w": [b"0", b"9223372036854775808"],
    b"f": _NUMBERS[:9],
    b"g": _NUMBERS[:10],
    b"d": [b'"2024-01-01"', b'"1900-03-01"', b"19723"],
    b"t": _DATES[6:14],
    b"v": _LISTS[:2],
    b"l": [b'["a","b"]', b"[]", b'["a:b"]'],
    b"m": [b"[1,2]", b"[]"],
    b"x": [b'"base64:YWI="', b'"base64:"'],
    b"id": [b'"one"', b'"x"', b'"\\u0041"'],
    b"k": _TEXTS[:11],
    b"n": [b"0", b"17"],
    b"since": [b'"2024-01-01"', b'"2024-12-31"'],
}
_MEMBERS = {
    b"T": [b"s", b"b", b"i", b"j", b"w", b"f", b"g", b"d", b"t", b"v", b"l", b"m", b"x", b"id"],
    b"K": [b"k", b"n", b"id"],
    b"Knows": [b"since", b"w", b"id"],
}
_ODD_NAMES = [b"nick", b"_rowid", b"\\u0073", b"\\u0069d", b"src", b"s", b"id", b"type", b"", b"\xff", b":"]
_COLONS = [b":"] * 5 + [b": ", b" :", b"\t:", b"\r: ", b" "]
_COMMAS = [b","] * 5 + [b", ", b" ,", b",,", b" "]


def _object(members: list[tuple[bytes, bytes]], colon: bytes, comma: bytes) -> bytes:
    return b"{" + comma.join(b'"' + name + b'"' + colon + value for name, value in members) + b"}"


@st.composite
def _right(draw: st.DrawFn) -> bytes:
    """A record that says what its type asks for, written in one of many ways."""
    owner = draw(st.sampled_from([b"T", b"T", b"K", b"Knows"]))
    names = draw(st.lists(st.sampled_from(_MEMBERS[owner]), unique=True, max_size=5))
    values = [
        draw(st.sampled_from([*_FITTING[name], b"null"][: None if name != b"id" else -1])) for name in names
    ]
    colon, comma = draw(st.sampled_from([(b":", b","), (b": ", b", "), (b" : ", b" ,")]))
    data = (b"data", _object(list(zip(names, values, strict=True)), colon, comma))
    if owner == b"Knows":
        name = draw(st.sampled_from([b"Knows", b"knows", b"KNOWS"]))
        record = [(b"edge", b'"' + name + b'"'), (b"from", b'"a"'), (b"to", b'"b:c"')]
    else:
        record = [(b"type", b'"' + owner + b'"')]
    return _object([*record, data][: None if names else -1], colon, comma)


@st.composite
def _wrong(draw: st.DrawFn) -> bytes:
    """A record of which anything may be wrong, or nothing."""
    owner = draw(st.sampled_from([*_MEMBERS, b"Missing", b"t", b"\\u0054"]))
    known = _MEMBERS.get(owner, _MEMBERS[b"T"])
    names = draw(st.lists(st.sampled_from(known) | st.sampled_from([*known, *_ODD_NAMES]), max_size=4))
    members = [(name, draw(_VALUES | st.sampled_from(_FITTING.get(name, [b"1"])))) for name in names]
    colon, comma = draw(st.sampled_from(_COLONS)), draw(st.sampled_from(_COMMAS))
    data = (b"data", draw(st.sampled_from([_object(members, colon, comma)] * 6 + [b"null", b"[]", b"7"])))
    kind = draw(
        st.sampled_from([b"edge" if owner == b"Knows" else b"type"] * 8 + [b"edge", b"type", b"kind"])
    )
    head = [(kind, b'"' + owner + b'"')]
    ends = [(b"from", draw(st.sampled_from([b'"a"', b"1", b"null"]))), (b"to", b'"b"')]
    envelope = [*head, *(ends if kind == b"edge" else ()), data]
    extra: list[list[tuple[bytes, bytes]]] = [[]] * 6 + [
        head,
        [data],
        ends,
        [(b"note", b"1")],
        [(b"_rowid", b"1")],
    ]
    envelope += draw(st.sampled_from(extra))
    if draw(st.integers(0, 5)) == 0:
        envelope = draw(st.permutations(envelope))
    return _object(envelope, colon, comma)


@st.composite
def _line(draw: st.DrawFn) -> bytes:
    """A record, or what becomes of one under way."""
    line = draw(_right() | _wrong())
    match draw(st.sampled_from(["whole"] * 6 + ["cut", "broken", "twice", "begun", "ended", "blank"])):
        case "cut":
            return line[: draw(st.integers(0, len(line)))]
        case "broken":
            at = draw(st.integers(0, len(line)))
            return line[:at] + b"\n" + line[at:]
        case "twice":
            return line + draw(st.sampled_from([b"", b" ", b",", b"\r"])) + line
        case "begun":
            return draw(st.sampled_from([b"\xef\xbb\xbf", b" ", b"\r", b"[", b"\x00"])) + line
        case "ended":
            return line + draw(st.sampled_from([b"\r", b"\r\r", b" ", b"}", b",", b"\x00", b"#"]))
        case "blank":
            return draw(st.sampled_from([b"", b" ", b"\r", b"\t \r"]))
    return line


@st.composite
def _file(draw: st.DrawFn) -> bytes:
    """Lines of which one kind or another prevails."""
    mostly = draw(st.sampled_from([_right(), _right(), _line()]))
    lines = draw(st.lists(mostly, max_size=6)) * draw(st.sampled_from([1, 1, 3, 20]))
    for line in draw(st.lists(_line(), max_size=3)):
        lines.insert(draw(st.integers(0, len(lines))), line)
    end = draw(st.sampled_from([b"\n", b"\n", b"\r\n"]))
    return end.join(lines) + draw(st.sampled_from([end, b""]))


_STYLES = [*[(b":", b","), (b": ", b", "), (b" : ", b" ,")] * 3, (b":\t", b",")]
_SLIPS = [b"", b'"', b" ", b"}", b"{", b",", b"0", b"-", b"\\", b"\r", b"\xff", b"\x00"]


def _alike(random: Random) -> bytes:
    """Many lines that are written in one or two ways, with values of which some may be odd."""
    parts = [_in_one_way(random) for _ in range(random.randint(1, 2))]
    lines = [line for mixed in zip_longest(*parts) for line in mixed if line is not None]
    for _ in range(random.choice([0, 0, 1, 2])):
        at = random.randrange(len(lines))
        cut = random.randint(0, len(lines[at]))
        rest = lines[at][cut + random.randint(0, 1) :]
        lines[at] = lines[at][:cut] + random.choice(_SLIPS) + rest
    end = random.choice([b"\n", b"\n", b"\r\n"])
    return end.join(lines) + random.choice([end, b""])


def _in_one_way(random: Random) -> list[bytes]:
    owner = random.choice([b"T", b"K", b"Knows"])
    known = [name for name in _MEMBERS[owner] if name not in (b"v", b"l", b"m")]
    names = random.sample(known, random.randint(0, min(4, len(known))))
    plain = {name: [value for value in _FITTING[name] if b"\\" not in value] for name in names}
    pools = {name: [*plain[name] * 4, *[b"null"] * (name != b"id")] for name in names}
    colon, comma = random.choice(_STYLES)
    odd = random.choice([0, 0, 0, 1, 4])
    lines = []
    for number in range(random.randint(16, 24)):
        values = [random.choice(_ANY if number < odd else pools[name]) for name in names]
        data = [(b"data", _object(list(zip(names, values, strict=True)), colon, comma))] if names else []
        record = [(b"type", b'"' + owner + b'"'), *data]
        if owner == b"Knows":
            ends = [(b"from", random.choice([b'""', b'"a:b"', b'"{}"', b'"7"'])), (b"to", b'"b%d"' % number)]
            record = [(b"edge", b'"Knows"'), *random.choice([ends, ends, ends[::-1]]), *data]
        lines.append(_object(record, colon, comma))
    return lines


# --- both ways ------------------------------------------------------------------------------------


def _read_together(split: Split) -> list[Any]:
    rows = READER.read(split)
    return [rows.violations, rows.lines, [_plain(shaped) for shaped in rows.shaped]]


def _read_one_by_one(split: Split) -> list[Any]:
    lines = Lines(split.data)
    reader = LineReader(split, READER.accepted.catalog)
    reader.read_singly(lines, np.arange(len(lines)))
    parsed = reader.parsed(lines)
    shaped = [build_rows(records, READER.targets[records.key], IDS) for records in parsed.records]
    wrong = [*parsed.violations, *(violation for one in shaped for violation in one.violations)]
    wrong.sort(key=lambda violation: violation.line or 0)
    return [tuple(wrong), parsed.lines, [_plain(one) for one in shaped]]


def _plain(shaped: Any) -> Any:
    columns = {name: _values(shaped.rows.column(name)) for name in shaped.rows.schema.names}
    # Only the text of a number tells its sign when it is zero.
    return shaped.key, repr(columns), shaped.generated.tolist(), shaped.lines.tolist()


def _values(column: pa.Array) -> list[Any]:
    column.validate(full=True)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif isinstance(column, pa.ExtensionArray):
        column = column.storage
    found: list[Any] = column.to_pylist()
    return found


@pytest.mark.fuzz
@given(_file(), st.integers(1, 50))
def test_lines_read_together_say_what_they_say_one_by_one(data: bytes, first_line: int) -> None:
    split = Split("f", data, 3, first_line, 1000 * first_line)
    assert _read_together(split) == _read_one_by_one(split)


@pytest.mark.fuzz
@given(st.integers(0, 2**32))
def test_lines_written_alike_say_what_they_say_one_by_one(seed: int) -> None:
    split = Split("f", _alike(Random(seed)), 3, 5, 1000)
    assert _read_together(split) == _read_one_by_one(split)


_ODD_LITERALS = [
    *(b"007", b"00", b"0x1f", b"-0x1f", b"-0", b"-01", b"+1", b"-", b"--1", b"1-2", b"-0.0", b"-0e0", b"0e1"),
    *(
        b"1.",
        b"1.e5",
        b".5",
        b"-.5",
        b"-5.",
        b"01.5",
        b"00.5",
        b"-00.5",
        b"0.5.5",
        b"1e5",
        b"1E-2",
        b"1e",
        b"1e400",
    ),
    *(
        b"123456789012345",
        b"1234567890123456",
        b"1234567890123456.5",
        b"-123456789012345",
        b"0.30000000000000004",
    ),
    *(
        b"9223372036854775807",
        b"9223372036854775808",
        b"-9223372036854775809",
        b"inf",
        b"nan",
        b"-inf",
        b"NaN",
    ),
    *(b"null", b"nul", b"nulll", b"none", b"true", b"tru", b"truee", b"True", b"false", b"falsee", b"fals"),
]


@pytest.mark.parametrize(
    ("name", "usual"),
    [
        *((b"i", b"12"), (b"j", b"-3"), (b"w", b"0"), (b"f", b"12"), (b"g", b"0.5"), (b"g", b"-0.25")),
        *((b"b", b"true"), (b"b", b"null"), (b"g", b"null"), (b"s", b"null")),
    ],
)
def test_a_literal_among_usual_ones_is_read_as_it_is_by_itself(name: bytes, usual: bytes) -> None:
    for odd in _ODD_LITERALS:
        lines = [b'{"type":"T","data":{"%s":%s}}' % (name, odd if at == 9 else usual) for at in range(18)]
        split = Split("f", b"\n".join(lines), 3, 5, 1000)
        assert _read_together(split) == _read_one_by_one(split), odd


# --- what is read together ------------------------------------------------------------------------


def _undecoded_lines(data: bytes) -> list[bytes]:
    """The lines that are not read together with others."""
    lines = Lines(data)
    reader = LineReader(Split("f", data), READER.accepted.catalog)
    return [lines.line(number) for number in reader.read_together(lines).tolist()]


@pytest.mark.parametrize(
    "line",
    [
        GOOD,
        GOOD.replace(b",", b", ").replace(b'":', b'": '),
        GOOD.replace(b'"s"', b'"id":"a","s"'),
        b'{"type":"T"}',
        b'{"type":"T","data":{}}',
        b'{"type":"T","data":{"s":null,"x":"base64:","l":["a:b"]}}',
        b'{"edge":"kNoWs","from":"a:b","to":"b"}',
        b'{"edge":"Knows","from":"a","to":"b","data":{"w":1}}',
        b'{"edge":"Knows","to":"a","data":{"w":1},"from":"b"}',
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_plain_lines_of_any_style_are_read_together(line: bytes, end: bytes) -> None:
    assert _undecoded_lines((line + end) * 100 + (GOOD + end) * 100 + line) == []


def test_types_may_take_turns() -> None:
    edge = b'{"edge":"Knows","from":"a","to":"b"}'
    key = b'{"type":"K","data":{"k":"x"}}'
    data = b"\n".join([GOOD, edge, key, b"", edge, GOOD] * 50)
    assert _undecoded_lines(data) == []
    assert [shaped.lines.tolist()[:4] for shaped in READER.read(Split("f", data)).shaped] == [
        [2, 5, 8, 11],
        [3, 9, 15, 21],
        [1, 6, 7, 12],
    ]


def test_a_flaw_costs_few_lines_their_company() -> None:
    for flawed in (GOOD[:-1], GOOD.replace(b'"s"', b'"nick"'), GOOD.replace(b"x", b"\xff"), GOOD + GOOD):
        left = _undecoded_lines(b"\n".join([*[GOOD] * 900, flawed, *[GOOD] * 900]))
        assert flawed in left
        assert len(left) <= 32
    repeated = GOOD.replace(b'"i"', b'"s":"y","i"')
    assert _undecoded_lines(b"\n".join([*[GOOD] * 900, repeated, *[GOOD] * 900])) == [repeated]


@pytest.mark.parametrize("name", [b's":', b's" :', b's"\t:', b's"\r:', b'\\u0073":', b'\\u0073" :'])
def test_a_repeated_member_is_found_however_it_is_written(name: bytes) -> None:
    repeated = GOOD.replace(b'"i"', b'"' + name + b'"y","i"')
    rows = READER.read(Split("f", b"\n".join([*[GOOD] * 40, repeated, *[GOOD] * 40])))
    (wrong,) = rows.violations
    assert (wrong.line, wrong.reason) == (41, "invalid strict JSON at line 41: duplicate JSON member 's'")


def test_a_record_on_two_lines_is_not_made_up_for_by_two_on_one() -> None:
    reader = LoadReader(accept_schema("node T { type: String? }"), IDS)
    lines = [b'{"type":"T","data":', b'{"type":"T"}}', b'{"type":"T"}{"type":"T"}', b'{"type":"T"}']
    rows = reader.read(Split("f", b"\n".join(lines)))
    assert [violation.line for violation in rows.violations] == [1, 2, 3]
    assert rows.shaped[0].lines.tolist() == [4]


def test_garbage_before_the_records_does_not_part_them() -> None:
    garbage = [b"# comment number %d" % number for number in range(10)]
    assert _undecoded_lines(b"\n".join([*[b""] * 500, *garbage, *[GOOD] * 100])) == garbage


@pytest.mark.parametrize("on", [True, False])
def test_the_search_for_cycles_is_as_it_was_after_a_read(on: bool) -> None:
    was_on = gc.isenabled()
    try:
        (gc.enable if on else gc.disable)()
        READER.read(Split("f", GOOD))
        assert gc.isenabled() is on
    finally:
        (gc.enable if was_on else gc.disable)()


# --- what is read without decoding ----------------------------------------------------------------


def _count_decoded(monkeypatch: pytest.MonkeyPatch, data: bytes) -> int:
    """How many lines are decoded, together or one by one."""
    seen: list[int] = []
    read = TypeDecoder.read

    def counted(self: TypeDecoder, lines: Lines, numbers: Any) -> Any:
        seen.append(len(numbers))
        return read(self, lines, numbers)

    monkeypatch.setattr(TypeDecoder, "read", counted)
    left = _undecoded_lines(data)
    return sum(seen) + len(left)


@pytest.mark.parametrize(
    "line",
    [
        b'{"edge":"Knows","from":"a","to":"b"}',
        b'{"edge": "Knows", "to": "a", "from": "b", "data": {"since": "2024-01-01", "w": 0.25}}',
        b'{"type":"T","data":{"s":"x: \xc3\xa9","b":true,"i":-7,"w":18,"f":1e3,"d":null,"id":"one"}}',
        b'{"type":"K","data":{"k":"x"}}\r',
    ],
)
def test_lines_written_alike_are_not_decoded(monkeypatch: pytest.MonkeyPatch, line: bytes) -> None:
    assert _count_decoded(monkeypatch, (line + b"\n") * 40) == 0
