"""Blank lines of NDJSON: counted, skipped, and never looked at one by one."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.rows.lines import Lines, Split
from omnigraph.engine.rows.ndjson import LineReader, parse_split
from tests.engine.write.support import accept_schema

CATALOG = accept_schema("node P { k: String @key }").catalog
LINES = st.sampled_from(
    [b"", b" ", b"\t\r", b"\r", b" " * 30, b'{"type":"P","data":{"k":"a"}}', b" {}", b"x"]
)


@pytest.mark.fuzz
@given(st.lists(LINES, max_size=8), st.booleans(), st.integers(1, 5), st.integers(0, 9))
def test_records_and_mistakes_keep_their_lines(
    lines: list[bytes], ended: bool, first_line: int, offset: int
) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    whole = Lines(data)
    parsed = parse_split(Split("f", data, 0, first_line, offset), CATALOG)
    assert parsed.lines == len(whole)
    wanted = [number for number, line in enumerate(lines) if b"type" in line]
    found = [records for records in parsed.records if len(records.lines)]
    assert [line for records in found for line in records.lines.tolist()] == [n + first_line for n in wanted]
    assert [at for records in found for at in records.offsets.tolist()] == [
        int(whole.starts[number]) + offset for number in wanted
    ]
    wrong = [number for number, line in enumerate(lines) if line.strip() in (b"{}", b"x")]
    assert [violation.line for violation in parsed.violations] == [number + first_line for number in wrong]


@pytest.mark.parametrize("line", [b"\n", b"\r\n", b"  \t\n", b" " * 40 + b"\n"])
@pytest.mark.parametrize("record", [b"", b'{"type":"P","data":{"k":"a"}}\n'])
def test_no_blank_line_is_decoded(line: bytes, record: bytes) -> None:
    data = (line * 500 + record) * 3 + line * 500
    with patch.object(
        LineReader, "_read_closely", side_effect=AssertionError("a line was looked at closely")
    ):
        parsed = parse_split(Split("f", data), CATALOG)
    assert parsed.lines == 2000 + (3 if record else 0)
    assert sum(len(records.lines) for records in parsed.records) == (3 if record else 0)
