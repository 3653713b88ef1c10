"""CSV: RFC 4180, texts as the property wants them, every line accounted for."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.load.sources.csv_records import csv_blocks, record_blocks, scan_records
from omnigraph.engine.load.sources.item import Columns, Dialect, Format, Item
from omnigraph.engine.load.sources.mapping import build_mapping
from omnigraph.engine.load.sources.text_columns import parse_texts
from omnigraph.engine.rows.lines import Limits
from omnigraph.errors import BadRequest, LoadRejected, ResourceLimitExceeded
from omnigraph.lang.types import Scalar, ValueType, vector_type
from tests.engine.load.sources.support import csv_text, plan, read, read_all
from tests.examples import EXAMPLES

NO_SOURCES = "this graph allows no external sources"
LINES = build_mapping({"inputs": [{"files": "*.csv", "multiline": False}]})


def _people(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "Person.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_an_empty_field_is_null_and_a_quoted_one_is_the_empty_text(tmp_path: Path) -> None:
    found = read(_people(tmp_path, 'handle,name\na,\nb,""\nc,null\n"d","say ""hi"""\n'))
    assert [(row["handle"], row["name"]) for row in found.rows["node:Person"]] == [
        ("a", None),
        ("b", ""),
        ("c", "null"),
        ("d", 'say "hi"'),
    ]


def test_a_mapping_says_which_other_texts_are_null_and_what_stands_between_fields(tmp_path: Path) -> None:
    path = _people(tmp_path, 'handle;name;age\na;null;-\nb;"null";7\n')
    mapping = build_mapping({"inputs": [{"files": "Person.csv", "delimiter": ";", "nulls": ["null", "-"]}]})
    rows = read(path, mapping=mapping).rows["node:Person"]
    assert [(row["name"], row["age"]) for row in rows] == [(None, None), ("null", 7)]


def test_byte_order_mark_blank_lines_and_a_last_line_without_end_are_fine(tmp_path: Path) -> None:
    found = read(_people(tmp_path, b"\xef\xbb\xbfhandle,age\r\n\r\na,1\r\n\r\n\r\nb,x"))
    assert [row["handle"] for row in found.rows["node:Person"]] == ["a"]
    assert found.problems == [(6, "strict property 'age' expects Int32, got \"x\"")]
    assert found.lines == 6


@pytest.mark.parametrize(
    ("property_", "text", "value"),
    [
        ("age", "36.0", 36),
        ("age", "-0.00", 0),
        ("age", "NA", None),
        ("score", "NaN", None),
        ("score", "<NA>", None),
        ("active", "True", True),
        ("active", "FALSE", False),
        ("active", "null", None),
        ("born", "NaT", None),
        ("seen", "\\N", None),
        ("name", "NA", "NA"),
    ],
)
def test_spellings_of_other_programs_are_taken_without_loss(
    property_: str, text: str, value: object, tmp_path: Path
) -> None:
    rows = [{"handle": "a", property_: text}, {"handle": "b"}]
    found = read(_people(tmp_path, csv_text(rows, ["handle", property_], "\n")))
    assert found.problems == []
    assert [row[property_] for row in found.rows["node:Person"]] == [value, None]


@pytest.mark.parametrize(
    ("property_", "text", "reason"),
    [
        ("age", "x", "strict property 'age' expects Int32, got \"x\""),
        ("age", "1.5", "strict property 'age' expects Int32, got \"1.5\""),
        ("age", " 1", "strict property 'age' expects Int32, got \" 1\""),
        ("age", "0x1F", "strict property 'age' expects Int32, got \"0x1F\""),
        ("age", "1\n", "strict property 'age' expects Int32, got \"1\\n\""),
        ("age", "3000000000", "property 'age' value 3000000000 exceeds Int32 range"),
        ("age", "9" * 30, f"property 'age' value {'9' * 30} exceeds Int32 range"),
        ("age", "151", "@range violation on Person.age: value 151 > max 150"),
        ("big", "-1", "property 'big' value -1 exceeds UInt64 range"),
        ("score", "1,5", "strict property 'score' expects Float64, got \"1,5\""),
        ("score", "inf", "strict property 'score' expects Float64, got \"inf\""),
        ("score", ".5", "strict property 'score' expects Float64, got \".5\""),
        ("score", "1e999", "property 'score': float value Infinity must be finite"),
        ("weight", "1e39", "property 'weight': float value 1e+39 exceeds Float32 range"),
        ("active", "yes", "strict property 'active' expects Boolean, got \"yes\""),
        ("active", "1", "strict property 'active' expects Boolean, got \"1\""),
        ("born", "2023-02-29", "strict property 'born' expects Date32, got \"2023-02-29\""),
        ("born", "12", "strict property 'born' expects Date32, got \"12\""),
        ("seen", "noon", "strict property 'seen' expects Date64, got \"noon\""),
        ("role", "boss", "invalid enum value 'boss' for Person.role (expected: dev, lead)"),
        ("tags", "x", "list property 'tags' expects a JSON array, got \"x\""),
        ("tags", "null", "list property 'tags' expects a JSON array, got null"),
        ("tags", "[1]", "strict list property 'tags' contains a null or invalid item"),
        ("marks", "[1] [2]", "list property 'marks' expects a JSON array, got \"[1] [2]\""),
        ("marks", "[1,", "list property 'marks' expects a JSON array, got \"[1,\""),
        ("face", "[1]", "vector property 'face' expects 2 dimensions, got 1"),
        ("face", '[1,"a"]', "vector property 'face' elements must be numeric, got \"a\""),
        ("photo", "b", f"blob property 'photo': external blob URI 'b' is not allowed: {NO_SOURCES}"),
        ("photo", "base64:!", "blob property 'photo': invalid base64 blob data: Only base64 data is allowed"),
        ("id", "x", "node Person explicit id 'x' does not match its canonical @key id 'b'"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_value_of_its_property_is_reported_with_its_line(
    property_: str, text: str, reason: str, tmp_path: Path
) -> None:
    rows = [{"handle": "a"}, {"handle": "b", property_: text}, {"handle": "c"}]
    found = read(_people(tmp_path, csv_text(rows, ["handle", property_], "\n")))
    assert found.problems == [(3, reason)]
    assert [row["handle"] for row in found.rows["node:Person"]] == ["a", "c"]


@pytest.mark.parametrize(
    ("type_", "texts", "values"),
    [
        (ValueType(Scalar.I32), ["1", None, "-7", "007", "+5"], [1, None, -7, 7, 5]),
        (ValueType(Scalar.U64), [str(2**64 - 1), "0"], [2**64 - 1, 0]),
        (ValueType(Scalar.F64), ["1", "-0.5", "1e3", "1E-2", None], [1.0, -0.5, 1000.0, 0.01, None]),
        (ValueType(Scalar.BOOL), ["true", None, "false"], [True, None, False]),
        (ValueType(Scalar.I64, is_list=True), ["[1, 2]", None, "[]", "[\n3]"], [[1, 2], None, [], [3]]),
        (ValueType(Scalar.STRING, is_list=True), ['["a[b"]', '["c"]', None], [["a[b"], ["c"], None]),
        (vector_type(2), ["[1,2]", None, "[0.5,-1]"], [[1.0, 2.0], None, [0.5, -1.0]]),
    ],
)
def test_texts_are_read_as_the_property_wants(
    type_: ValueType, texts: list[str | None], values: list[Any]
) -> None:
    cells = parse_texts(pa.array(texts, pa.string()), "p", type_)
    assert cells.faults == {}
    assert cells.array.to_pylist() == values


def test_arrays_that_would_make_sense_only_together_are_no_arrays() -> None:
    cells = parse_texts(pa.array(["[1,", "2]", "[1] [2]"]), "p", ValueType(Scalar.I64, is_list=True))
    assert set(cells.faults) == {0, 1, 2}


def test_lines_count_on_over_fields_of_several_lines(tmp_path: Path) -> None:
    found = read(_people(tmp_path, 'handle,name,age\na,"one\ntwo\r\nthree",x\nb,c,y\n'))
    assert found.problems == [
        (2, "strict property 'age' expects Int32, got \"x\""),
        (5, "strict property 'age' expects Int32, got \"y\""),
    ]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ('a,5" pipe\n', 3, "a quote inside a field needs quotes around the field, and stands there twice"),
        ('a,"x"y\n', 3, "a quote inside a field needs quotes around the field, and stands there twice"),
        ('a, "x"\n', 3, "a quote inside a field needs quotes around the field, and stands there twice"),
        ('a,"x\nb,y\n', 3, "a quoted field does not end"),
    ],
)  # fmt: skip
def test_a_stray_quote_fails_the_file_unless_lines_are_records(
    text: str, line: int, reason: str, tmp_path: Path
) -> None:
    path = _people(tmp_path, "handle,name\nok,fine\n" + text + "last,fine\n")
    with pytest.raises(BadRequest, match=f"is not valid CSV from line {line} on"):
        read(path)
    found = read(path, mapping=LINES)
    assert found.problems[0] == (line, f"invalid CSV at line {line}: {reason}")
    handles = [row["handle"] for row in found.rows["node:Person"]]
    assert (handles[0], handles[-1]) == ("ok", "last")
    assert "a" not in handles


@pytest.mark.parametrize("mapping", [None, LINES])
def test_records_with_too_few_or_too_many_fields_are_left_out(mapping: Any, tmp_path: Path) -> None:
    path = _people(tmp_path, 'handle,name\na\nb,"x,y"\nc,d,e\nf,g\rh\n,\n')
    found = read(path, mapping=mapping)
    assert found.problems == [
        (2, "invalid CSV at line 2: expected 2 fields, got 1"),
        (4, "invalid CSV at line 4: expected 2 fields, got 3"),
        (5, "invalid CSV at line 5: a carriage return inside a field needs quotes around the field"),
        (6, "non-nullable property 'handle' has null or invalid values"),
    ]
    assert [(row["handle"], row["name"]) for row in found.rows["node:Person"]] == [("b", "x,y")]


def test_text_that_is_not_utf8_is_reported(tmp_path: Path) -> None:
    found = read(_people(tmp_path, b"handle,name\na,\xff\nb,ok\n"))
    assert found.problems == [(2, "strict property 'name' expects Utf8, got text that is not UTF-8")]
    assert [row["handle"] for row in found.rows["node:Person"]] == ["b"]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"", "has no line of names"),
        (b"handle,,age\n", "has no line of names, or an empty name in it"),
        (b"handle,\xff\n", "has no line of names that can be read"),
    ],
)
def test_a_file_without_names_is_refused(text: bytes, match: str, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=match):
        plan(_people(tmp_path, text))


def test_columns_are_checked_by_name(tmp_path: Path) -> None:
    with pytest.raises(LoadRejected) as refused:
        plan(_people(tmp_path, "handle,nick,age,age\n"))
    assert [wrong.reason for wrong in refused.value.violations] == [
        "column 'age' appears 2 times",
        "unknown input field 'nick' for 'node:Person'",
    ]


def test_a_file_of_names_alone_has_no_rows(tmp_path: Path) -> None:
    found = read(_people(tmp_path, "handle,age"))
    assert found.rows == {"node:Person": []}
    assert found.violations == []


def test_generated_ids_of_csv_follow_from_the_byte_a_record_begins_at(tmp_path: Path) -> None:
    lines = tmp_path / "Note.csv"
    lines.write_text("text\n" + "".join(f"note {number}\n" for number in range(50)))
    once = read(lines)
    assert len({row["id"] for row in once.rows["node:Note"]}) == 50
    assert read(lines, mapping=LINES) == once
    assert read(lines, mapping=LINES, split=40) == once


def test_a_cut_at_any_byte_of_single_lines_changes_nothing(tmp_path: Path) -> None:
    path = _people(tmp_path, 'handle,name,age\r\na,"x,""y""",1\r\n\r\nb,z,old\r\nshort\r\nc,,3')
    (whole,) = plan(path, mapping=LINES)
    once = read_all([whole])
    assert len(once.violations) == 2
    for cut in range(whole.end + 1):
        assert read_all([replace(whole, end=cut), replace(whole, begin=cut, number=1)]) == once, cut


FIELD = st.text(st.sampled_from('ab",\n\r é'), max_size=6)


@pytest.mark.fuzz
@given(
    rows=st.lists(st.tuples(FIELD, FIELD), max_size=8),
    end=st.sampled_from(["\n", "\r\n"]),
    size=st.integers(1, 40),
)
def test_what_the_standard_library_writes_is_read_back(
    scratch: Path, rows: list[tuple[str, str]], end: str, size: int
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([("x", "y"), *rows])
    path = scratch / "t.csv"
    path.write_bytes(text.getvalue().encode())
    columns = Columns("node:T", ("x", "y"), (("x", "x"), ("y", "y")))
    item = Item(str(path), str(path), 0, 0, Format.CSV, 0, 0, 0, columns)
    blocks = list(csv_blocks(item, Limits(), size=size))
    found = [
        tuple(value.decode() for value in row.values())
        for block in blocks
        for row in block.columns.to_pylist()
    ]
    assert found == rows
    assert all(block.violations == () for block in blocks)
    raw = text.getvalue().encode()
    positions = [position for block in blocks for position in block.positions.tolist()]
    lines = [line for block in blocks for line in block.lines.tolist()]
    assert [raw[:position].count(b"\n") + 1 for position in positions] == lines


@pytest.mark.fuzz
@given(
    data=st.binary(max_size=40).map(lambda raw: bytes(b'ab",\n\r'[byte % 6] for byte in raw)),
    multiline=st.booleans(),
)
@settings(max_examples=3 * EXAMPLES)
def test_records_that_pass_are_read_as_so_many_rows(scratch: Path, data: bytes, multiline: bool) -> None:
    path = scratch / "t.csv"
    path.write_bytes(b"x,y\n" + data)
    columns = Columns("node:T", ("x", "y"), (("x", "x"), ("y", "y")), dialect=Dialect(multiline=multiline))
    item = Item(str(path), str(path), 0, 0, Format.CSV, 0, 4 + len(data), 0, columns)
    try:
        blocks = list(csv_blocks(item, Limits()))
    except BadRequest:
        # Only where a quote leads astray it is unknown what the records are.
        assert multiline
        assert b'"' in data
        return
    lines = [line for block in blocks for line in block.lines.tolist()]
    wrong = [violation.line for block in blocks for violation in block.violations]
    starts = {1, *(data[:at].count(b"\n") + 3 for at, byte in enumerate(data) if byte == 10), 2}
    assert set(lines) | set(wrong) <= starts
    assert not set(lines) & set(wrong)
    if not multiline:
        filled = {at + 2 for at, line in enumerate(data.split(b"\n")) if line.removesuffix(b"\r")}
        assert set(lines) | set(wrong) == filled


def test_a_record_without_end_is_refused_before_it_fills_the_memory() -> None:
    with pytest.raises(ResourceLimitExceeded, match="csv_record_bytes"):
        list(record_blocks(io.BytesIO(b'"' + b"x" * 5000), Limits(line_bytes=1000), size=600))


def test_blank_records_are_no_problem_of_any_kind() -> None:
    records = scan_records(b"\n\r\n\r\n", Dialect(), 2)
    assert records.problems == ()
    assert not records.is_row.any()
    assert records.line_count == 3
