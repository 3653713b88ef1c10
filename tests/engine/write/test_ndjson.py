"""Strict NDJSON: which lines are records, and what is said about the others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.rows.lines import Limits, Split
from omnigraph.engine.rows.ndjson import parse_split
from omnigraph.errors import ResourceLimitExceeded
from tests.engine.write.support import SCHEMA, accept_schema, lines, list_problems, read, split_lines

CATALOG = accept_schema(SCHEMA).catalog
GOOD = b'{"type":"Log","data":{"msg":"x"}}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"type":"Log","data":{"msg":"x"}', "invalid strict JSON at line 2: input data was truncated"),
        (GOOD + GOOD, "invalid strict JSON at line 2: trailing characters (byte 34)"),
        (b'\xef\xbb\xbf{"type":"Log"}', "invalid strict JSON at line 2: a byte-order mark is not allowed"),
        (b'{"type":"Log","data":{"msg":"\xff"}}', "invalid strict JSON at line 2: not valid UTF-8"),
        (b'{"type":"Log","data":{"msg":"\xed\xa0\x80"}}', "invalid strict JSON at line 2: not valid UTF-8"),
        (b'{"type":"Log","data":{"msg":"\\ud800"}}', "invalid strict JSON at line 2: lone surrogate escape"),
        (b'{"type":"Log","data":{"msg":"\\udc00!"}}', "invalid strict JSON at line 2: lone surrogate escape"),
        (
            b'{"type":"Log","data":{"msg":"a\x01b"}}',
            "invalid strict JSON at line 2: invalid character (byte 30)",
        ),
        (
            b'{"type":"Log","data":{"msg":"a\tb"}}',
            "invalid strict JSON at line 2: invalid character (byte 30)",
        ),
        (b'{"type":"Log","data":{"msg":NaN}}', "invalid strict JSON at line 2: invalid character (byte 28)"),
        (b'{"type":"Log","data":{"msg":1e400}}', "invalid strict JSON at line 2: number out of range"),
        (b"[" * 100_000, "invalid strict JSON at line 2: nested too deeply"),
        (b"# a comment", "invalid strict JSON at line 2: invalid character (byte 0)"),
        (b'{"type":"Log","type":"Log"}', "invalid strict JSON at line 2: duplicate JSON member 'type'"),
        (
            b'{"type":"Person","data":{"handle":"x","handle":"y"}}',
            "invalid strict JSON at line 2: duplicate JSON member 'handle'",
        ),
        (
            b'{"type":"Person","data":{"handle":"x", "h\\u0061ndle" : "y"}}',
            "invalid strict JSON at line 2: duplicate JSON member 'handle'",
        ),
        (
            b'{"type":"Log","data":{"msg":[{"a":{"k":1,"k":1}}]}}',
            "invalid strict JSON at line 2: duplicate JSON member 'k'",
        ),
        (b'["Log"]', "line 2: graph batch record must be one JSON object"),
        (b"17", "line 2: graph batch record must be one JSON object"),
        (b'{"data":{}}', "line 2: graph batch record must contain exactly one of 'type' or 'edge'"),
        (
            b'{"type":"Log","edge":"Mentors"}',
            "line 2: graph batch record must contain exactly one of 'type' or 'edge'",
        ),
        (b'{"type":"Log","note":1}', "line 2: unknown top-level graph batch field 'note'"),
        (b'{"type":"Log","from":"a"}', "line 2: unknown top-level graph batch field 'from'"),
        (b'{"type":"Log","_rowid":1}', "line 2: top-level field '_rowid' is reserved physical state"),
        (b'{"type":"Log","_tombstone":1}', "line 2: top-level field '_tombstone' is reserved physical state"),
        (b'{"edge":"Mentors","to":"bo"}', "line 2: graph batch record requires field 'from'"),
        (b'{"edge":"Mentors","from":"bo"}', "line 2: graph batch record requires field 'to'"),
        (b'{"type":null}', "line 2: graph batch field 'type' must be a string, got null"),
        (
            b'{"edge":"Mentors","from":7,"to":"bo"}',
            "line 2: graph batch field 'from' must be a string, got 7",
        ),
        (b'{"type":"Log","data":["x"]}', "line 2: graph batch field 'data' must be an object, got [\"x\"]"),
        (b'{"type":"Log","data":null}', "line 2: graph batch field 'data' must be an object, got null"),
        (b'{"type":"log"}', "line 2: unknown node type 'log'"),
        (b'{"edge":"Likes","from":"a","to":"b"}', "line 2: unknown edge type 'Likes'"),
        (
            b'{"edge":"Mentors","from":"ada","to":"bo","data":{"src":"cy"}}',
            "line 2: edge data field 'src' is reserved structural state",
        ),
    ],
)
def test_a_bad_line_is_reported_with_its_number_and_the_others_are_read(line: bytes, reason: str) -> None:
    rows = read(GOOD + b"\n" + line + b"\n" + GOOD + b"\n")
    assert list_problems(rows) == [(2, reason)]
    assert [shaped.lines.tolist() for shaped in rows.shaped] == [[1, 3]]
    assert rows.lines == 3


def test_line_ends_and_blank_lines() -> None:
    data = GOOD + b"\r\n\n \t\r\n" + GOOD + b"\n\r\n" + GOOD
    parsed = parse_split(Split("f", data, first_line=10, offset=1000), CATALOG)
    (records,) = parsed.records
    assert parsed.violations == ()
    assert records.lines.tolist() == [10, 13, 15]
    assert [data[at - 1000 : at - 1000 + len(GOOD)] for at in records.offsets.tolist()] == [GOOD] * 3
    assert parse_split(Split("f", b""), CATALOG).records == ()


def test_a_lone_carriage_return_ends_no_line() -> None:
    assert list_problems(read(GOOD + b"\r" + GOOD + b"\n")) == [
        (1, "invalid strict JSON at line 1: trailing characters (byte 35)")
    ]


def test_edge_names_are_found_in_any_case_and_data_may_be_left_out() -> None:
    parsed = parse_split(
        Split("f", lines({"edge": "mEnToRs", "from": "a", "to": "b"}, {"type": "Log"})), CATALOG
    )
    assert [(found.key, found.raw.columns, found.raw.ids) for found in parsed.records] == [
        ("edge:Mentors", {"since": [None], "note": [None]}, None),
        ("node:Log", {"msg": [None]}, None),
    ]
    assert (parsed.records[0].raw.sources, parsed.records[0].raw.targets) == (["a"], ["b"])


def test_colons_quotes_and_escapes_in_texts_are_data() -> None:
    texts = ["a:b", '":', '\\":"', "\u0000", "{:}", "é:\U0001f600"]
    records = [{"type": "Log", "data": {"msg": text}} for text in texts]
    spaced = "\n".join(json.dumps(record, separators=(" , ", " : ")) for record in records).encode()
    for data in (lines(*records), spaced):
        (found,) = parse_split(Split("f", data), CATALOG).records
        assert list(found.raw.columns["msg"]) == texts


def test_lines_beyond_the_limits_stop_the_load() -> None:
    long = lines({"type": "Log", "data": {"msg": "x" * 100}})
    with pytest.raises(
        ResourceLimitExceeded, match="graph_batch_line_bytes: actual 136, limit 135"
    ) as caught:
        read(b"{}\n" + long, limits=Limits(line_bytes=135))
    assert caught.value.remedy == "make the record smaller whose line begins at byte 3 of 'in.ndjson'"
    assert read(long, limits=Limits(line_bytes=136, structural_slots=8)).violations == ()
    with pytest.raises(ResourceLimitExceeded, match="graph_batch_json_structural_slots: actual 8, limit 7"):
        read(b'{"type":"Log","data":{"msg":":::::"}}', limits=Limits(structural_slots=7))


def test_a_long_line_that_breaks_off_inside_a_text_is_looked_at_once() -> None:
    """If each quote began another look to the end of the line, this would take longer than anybody waits."""
    text = json.dumps({"type": "Log", "data": {"msg": '{"key": [1, 2]}, ' * 200_000}})
    (violation,) = read(text[: len(text) // 2].encode()).violations
    assert "truncated" in violation.reason


@pytest.mark.fuzz
@given(st.lists(st.sampled_from([GOOD, b"", b"{", b"\r", GOOD + b"\r"]), max_size=12), st.integers(1, 60))
def test_cutting_a_file_into_splits_changes_nothing(parts: list[bytes], size: int) -> None:
    data = b"\n".join(parts)
    whole = parse_split(Split("f", data), CATALOG)
    pieces = [parse_split(split, CATALOG) for split in split_lines(data, "f", size)]
    assert [v for piece in pieces for v in piece.violations] == list(whole.violations)
    for wanted in ("lines", "offsets"):
        found = [n for piece in pieces for r in piece.records for n in getattr(r, wanted).tolist()]
        assert found == [n for r in whole.records for n in getattr(r, wanted).tolist()]


_ATOMS = st.none() | st.booleans() | st.integers(-5, 5) | st.text('ab":\\{', max_size=4)
_VALUES = st.recursive(
    _ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(st.tuples(st.sampled_from("kl"), inner), max_size=3).map(tuple)
    ),
)


def _to_json(value: Any) -> str:
    """JSON in which an object is a tuple of pairs, so that members may repeat."""
    if isinstance(value, tuple):
        return "{" + ",".join(f"{json.dumps(name)}:{_to_json(inner)}" for name, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_to_json, value)) + "]"
    return json.dumps(value)


def _repeats(value: Any) -> bool:
    if isinstance(value, tuple):
        names = [name for name, _ in value]
        return len(names) != len(set(names)) or any(_repeats(inner) for _, inner in value)
    return isinstance(value, list) and any(map(_repeats, value))


@pytest.mark.fuzz
@given(_VALUES)
def test_a_repeated_member_is_found_at_any_depth(value: Any) -> None:
    line = f'{{"type":"Log","data":{{"msg":{_to_json(value)}}}}}'.encode()
    parsed = parse_split(Split("f", line), CATALOG)
    assert [("duplicate JSON member" in wrong.reason) for wrong in parsed.violations] == [True] * _repeats(
        value
    )
    assert len(parsed.records) == (not _repeats(value))
