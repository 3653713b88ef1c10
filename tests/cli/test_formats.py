"""The forms in which a result is printed."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.cli.result_output import FORMATS, Format, table
from omnigraph.display.grid import Layout
from omnigraph.lang.types import BOOL, DATE, F64, I64, STRING, Scalar, ValueType, vector_type
from omnigraph.lang.values import arrow_type
from omnigraph.query.result import Result

TEXTS = ValueType(Scalar.STRING, is_list=True)
MORE_THAN_A_BATCH = 20_000


def result(*columns: tuple[str, ValueType, list[Any]], commit: str | None = "01HX") -> Result:
    arrays = [pa.array(values, arrow_type(type_)) for _, type_, values in columns]
    table = pa.Table.from_arrays(arrays, names=[name for name, _, _ in columns])
    return Result(table, tuple(type_ for _, type_, _ in columns), "q", "main", None, commit)


def many() -> Result:
    numbers = list(range(MORE_THAN_A_BATCH))
    return result(("n", I64, numbers), ("s", STRING, [f"text {n}" for n in numbers]))


def render(found: Result, form: Format) -> str:
    pieces = FORMATS[form](found)
    return "".join(piece if isinstance(piece, str) else piece.decode("utf-8") for piece in pieces)


SEVERAL = (
    ("name", STRING, ["ada", 'a "b", c', None]),
    ("n", I64, [2**63 - 1, -1, None]),
    ("x", F64, [0.1, float("nan"), None]),
    ("yes", BOOL, [True, False, None]),
    ("tags", TEXTS, [["a", 'b"'], [], None]),
    ("face", vector_type(2), [[0.5, -1.0], [0.0, 0.0], None]),
    ("day", DATE, [19860, 0, None]),
)


# --- json and ndjson -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found",
    [
        result(*SEVERAL),
        result(("é\n", STRING, ["\u2028 \x00 日"])),
        result(("x", I64, [1, 2]), ("x", STRING, ["a", None])),
        result(("x", I64, [])),
        result(("x", I64, [1]), commit=None),
        Result(pa.table({}), (), "q", None, "01HZ", None),
        many(),
    ],
    ids=["kinds", "unicode", "repeated", "no rows", "no commit", "no columns", "many"],
)
def test_json_is_the_envelope(found: Result) -> None:
    assert render(found, Format.JSON) == json.dumps(found.envelope(), indent=2, ensure_ascii=False) + "\n"


@pytest.mark.parametrize("form", [Format.NDJSON, Format.JSONL])
def test_ndjson_is_a_line_about_the_result_and_one_for_each_row(form: Format) -> None:
    found = result(*SEVERAL)
    head, *rows = map(json.loads, render(found, form).splitlines())
    assert head == {
        "kind": "metadata",
        "query_name": "q",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 3,
    }
    assert rows == found.rows()


def test_ndjson_of_no_rows_is_the_first_line_alone() -> None:
    assert render(result(("x", I64, [])), Format.NDJSON).count("\n") == 1


# --- csv -----------------------------------------------------------------------------------------


def test_csv_quotes_what_needs_it_and_writes_lists_as_json() -> None:
    assert render(result(*SEVERAL), Format.CSV) == (
        "name,n,x,yes,tags,face,day\n"
        'ada,9223372036854775807,0.1,true,"[""a"",""b\\""""]","[0.5,-1.0]",2024-05-17\n'
        '"a ""b"", c",-1,NaN,false,[],"[0.0,0.0]",1970-01-01\n'
        "null,null,null,null,null,null,null\n"
    )


def test_csv_tells_null_from_its_word_and_from_nothing() -> None:
    assert render(result(("x", STRING, [None, "null", "", "NULL"])), Format.CSV) == (
        'x\nnull\n"null"\n""\nNULL\n'
    )


def test_csv_keeps_columns_that_share_a_name() -> None:
    found = result(("x,y", I64, [1]), ("x,y", STRING, ["a"]))
    assert render(found, Format.CSV) == '"x,y","x,y"\n1,a\n'


def test_csv_of_no_columns_is_empty() -> None:
    assert render(Result(pa.table({}), (), "q", "main", None, None), Format.CSV) == ""


@given(st.lists(st.tuples(st.text(), st.lists(st.text(alphabet='a",\r\n'))), min_size=1))
def test_any_text_in_csv_is_read_back(rows: list[tuple[str, list[str]]]) -> None:
    texts, lists = map(list, zip(*rows, strict=True))
    text = render(result(("a", STRING, texts), ("b", TEXTS, lists)), Format.CSV)
    head, *read = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert head == ["a", "b"]
    assert [(first, json.loads(second)) for first, second in read] == rows


# --- table and kv --------------------------------------------------------------------------------


def test_a_table_has_every_row() -> None:
    lines = render(many(), Format.TABLE).splitlines()
    assert lines[:4] == [
        "20000 rows from branch main via q",
        "    n | s",
        "------+-----------",
        "    0 | text 0",
    ]
    assert lines[-1] == "19999 | text 19999"
    assert len(lines) == MORE_THAN_A_BATCH + 3


def test_a_table_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    found = result(("a", STRING, ["x" * 80, "y" * 81]), ("b", I64, [1, 2]))
    assert render(found, Format.TABLE).splitlines()[3:] == ["x" * 80 + " | 1", "y" * 79 + "… | 2"]


def test_a_table_shows_ends_of_lines_and_nulls() -> None:
    found = result(("a", STRING, ["one\ntwo", None]))
    assert render(found, Format.TABLE).splitlines()[3:] == [r"one\ntwo", "null"]


def test_a_table_without_columns_says_so() -> None:
    nothing = Result(pa.table({}), (), "q", None, "01HZ", None)
    assert render(nothing, Format.TABLE) == "0 rows from snapshot 01HZ via q\n(no rows)\n"


def test_a_table_is_as_narrow_as_asked_and_cuts_or_wraps() -> None:
    found = result(
        ("a long name", STRING, ["abcdefghij", "日本日本日", "short", ""]), ("n", I64, [1, 2, 3, 4])
    )
    assert "".join(table(found, Layout(8))).splitlines()[1:] == [
        "a long … | n",
        "---------+--",
        "abcdefg… | 1",
        "日本日…  | 2",
        "short    | 3",
        "         | 4",
    ]
    assert "".join(table(found, Layout(8, wraps=True))).splitlines()[1:] == [
        "a long n | n",
        "ame      |",
        "---------+--",
        "abcdefgh | 1",
        "ij       |",
        "日本日本 | 2",
        "日       |",
        "short    | 3",
        "         | 4",
    ]
    assert list(table(found, Layout(1))) == list(table(found, Layout(8)))


def test_kv_is_a_block_for_each_row() -> None:
    long = "x" * 200
    found = result(("a", STRING, [f"{long}\n", None]), ("b", I64, [1, 2]), ("b", TEXTS, [["t"], []]))
    assert render(found, Format.KV) == (
        f'2 rows from branch main via q\nrow 1\na: {long}\\n\nb: 1\nb: ["t"]\n\nrow 2\na: null\nb: 2\nb: []\n'
    )


def test_kv_counts_on_across_batches() -> None:
    assert render(many(), Format.KV).endswith("\n\nrow 20000\nn: 19999\ns: text 19999\n")


# --- arrow, and pieces ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found",
    [
        result(
            *(column for column in SEVERAL if column[0] != "x")
        ),  # which has a NaN, and that equals nothing
        result(("x", I64, [1]), ("x", F64, [0.5])),
        result(("x", I64, [])),
        many(),
    ],
)
def test_arrow_is_a_stream_of_the_same_table(found: Result) -> None:
    stream = b"".join(piece for piece in FORMATS[Format.ARROW](found) if isinstance(piece, bytes))
    assert pa.ipc.open_stream(stream).read_all() == found.to_arrow()


@pytest.mark.parametrize("form", list(Format))
def test_a_large_result_comes_in_pieces(form: Format) -> None:
    rows = 70_000
    found = result(("n", I64, list(range(rows))))
    sizes = [len(piece) for piece in FORMATS[form](found)]
    assert len(sizes) >= 3
    assert max(sizes) < sum(sizes) * (0.95 if form is Format.ARROW else 0.3)
