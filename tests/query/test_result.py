"""What a read gives back: rows, Arrow, data frames, and how it looks."""

from __future__ import annotations

import html
import pickle
import re
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.display.text import display_width, format_value
from omnigraph.errors import BadRequest, InvalidValue, MissingExtra, QueryError
from omnigraph.lang.types import BOOL, DATE, DATETIME, F64, I64, STRING, Scalar, ValueType, vector_type
from omnigraph.lang.values import arrow_type
from omnigraph.query.result import OneRow, Result

EVERY_KIND: dict[str, tuple[ValueType, Any, Any]] = {
    "text": (STRING, "ada", "ada"),
    "role": (ValueType(Scalar.STRING, enum_values=("dev", "ops")), "dev", "dev"),
    "yes": (BOOL, True, True),
    "i32": (ValueType(Scalar.I32), -5, -5),
    "i64": (I64, 2**63 - 1, 2**63 - 1),
    "u64": (ValueType(Scalar.U64), 2**64 - 1, 2**64 - 1),
    "f32": (ValueType(Scalar.F32), 0.1, 0.10000000149011612),
    "f64": (F64, 0.1, 0.1),
    "nan": (F64, float("nan"), "NaN"),
    "low": (F64, float("-inf"), "-Infinity"),
    "day": (DATE, date(2024, 5, 17), "2024-05-17"),
    "moment": (DATETIME, datetime(2024, 5, 17, 9, 30, tzinfo=UTC), "2024-05-17T09:30:00.000Z"),
    "list": (ValueType(Scalar.DATE, is_list=True), [date(2024, 5, 17)], ["2024-05-17"]),
    "face": (vector_type(2), [0.5, float("inf")], [0.5, None]),
}


def result(columns: list[tuple[str, ValueType, list[Any]]], **facts: Any) -> Result:
    arrays = [pa.array(values, arrow_type(type_)) for _, type_, values in columns]
    table = pa.Table.from_arrays(arrays, names=[name for name, _, _ in columns])
    types = tuple(type_ for _, type_, _ in columns)
    given = {
        "query_name": "q",
        "branch": "main",
        "snapshot": None,
        "graph_commit_id": "01HX",
        **facts,
    }
    return Result(table, types, **given)


def people(**facts: Any) -> Result:
    return result([("name", STRING, ["ada", "bo"]), ("age", I64, [36, None])], **facts)


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


# --- rows ----------------------------------------------------------------------------------------


def test_rows_hold_values_as_json_has_them() -> None:
    columns = [(name, type_, [given, None]) for name, (type_, given, _) in EVERY_KIND.items()]
    first, second = result(columns).rows()
    assert first == {name: wanted for name, (_, _, wanted) in EVERY_KIND.items()}
    assert second == dict.fromkeys(EVERY_KIND)


def test_of_columns_that_share_a_name_rows_have_the_last_and_tuples_all() -> None:
    found = result([("x", I64, [1, 2]), ("y", STRING, ["a", "b"]), ("x", F64, [0.5, None])])
    assert found.columns == ["x", "y", "x"]
    assert found.rows() == [{"x": 0.5, "y": "a"}, {"x": None, "y": "b"}]
    assert found.tuples() == [(1, "a", 0.5), (2, "b", None)]
    assert found.to_arrow().num_columns == 3


def test_iterating_gives_the_rows_and_len_counts_them() -> None:
    found = people()
    assert list(found) == found.rows() == [{"name": "ada", "age": 36}, {"name": "bo", "age": None}]
    assert len(found) == 2
    assert not result([("a", I64, [])])


def test_rows_come_in_order_across_chunks_and_batches() -> None:
    chunks = pa.chunked_array([pa.array(range(9_000)), pa.array([], pa.int64()), pa.array([9_000, 9_001])])
    found = Result(pa.table({"n": chunks}), (I64,), "q", "main", None, None)
    assert [row["n"] for row in found] == list(range(9_002))
    assert found.tuples() == [(n,) for n in range(9_002)]


def test_one_and_scalar_take_what_is_alone() -> None:
    assert result([("n", I64, [3])]).scalar() == 3
    assert result([("n", I64, [None])]).scalar() is None
    assert result([("n", I64, [3]), ("m", STRING, ["a"])]).one() == {"n": 3, "m": "a"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "query: 'q' gave no rows where one was expected"),
        ([1, 2], "query: 'q' gave 2 rows where one was"),
    ],
)
def test_one_and_scalar_refuse_another_number_of_rows(values: list[int], message: str) -> None:
    for taken in (Result.one, Result.scalar):
        with pytest.raises(QueryError, match=re.escape(message)):
            taken(result([("n", I64, values)]))


def test_scalar_refuses_more_than_one_column() -> None:
    with pytest.raises(QueryError, match="gave 2 columns where one was expected") as caught:
        people().scalar()
    assert caught.value.remedy == "return one value, or take the row with `one()`"


# --- the envelope --------------------------------------------------------------------------------


def test_the_envelope_of_a_branch() -> None:
    assert people().envelope() == {
        "query_name": "q",
        "target": {"branch": "main", "snapshot": None},
        "row_count": 2,
        "columns": ["name", "age"],
        "rows": [{"name": "ada", "age": 36}, {"name": "bo", "age": None}],
        "graph_commit_id": "01HX",
    }


def test_the_envelope_leaves_out_what_there_is_not() -> None:
    empty = Result(pa.table({}), (), "q", None, "01HZ", None)
    assert empty.envelope() == {
        "query_name": "q",
        "target": {"branch": None, "snapshot": "01HZ"},
        "row_count": 0,
        "rows": [],
    }


# --- Arrow and data frames -----------------------------------------------------------------------


def addresses(arrays: Iterator[pa.Array]) -> list[int]:
    return [array.buffers()[1].address for array in arrays]


def test_arrow_and_batches_share_the_memory_of_the_result() -> None:
    table = pa.table({"n": pa.chunked_array([pa.array(range(10)), pa.array(range(10, 15))])})
    found = Result(table, (I64,), "q", "main", None, None)
    batches = list(found.batches(4))
    assert [batch.num_rows for batch in batches] == [4, 4, 2, 4, 1]
    assert pa.Table.from_batches(batches) == found.to_arrow() == table
    chunks = addresses(iter(table["n"].chunks))
    assert set(addresses(batch.column(0) for batch in batches)) == set(chunks)


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_has_at_least_one_row(size: int) -> None:
    with pytest.raises(InvalidValue, match=f"at least 1, got {size}"):
        people().batches(size)


@pytest.mark.parametrize("size", ["3", 1.5, True, None, float("nan")])
def test_the_size_of_a_batch_is_a_whole_number(size: Any) -> None:
    with pytest.raises(InvalidValue, match="the size of a batch must be a whole number"):
        people().batches(size)


@pytest.mark.parametrize("size", [2**63, 2**70])
def test_a_batch_may_be_larger_than_any_result(size: int) -> None:
    assert [len(batch) for batch in people().batches(size)] == [2]
    assert list(result([("n", I64, [])]).batches(size)) == []


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=f"to_{package} needs the package '{package}'") as caught:
        getattr(people(), f"to_{package}")()
    assert caught.value.package == package


def test_a_package_that_is_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "polars.py").write_text("import a_package_that_is_missing", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "polars", raising=False)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_missing"):
        people().to_polars()


def test_pandas_keeps_whole_numbers_exact_beside_nulls() -> None:
    huge = 2**53 + 1
    columns: list[tuple[str, ValueType, list[Any]]] = [
        ("n", I64, [huge, None]),
        ("u", ValueType(Scalar.U64), [2**64 - 1, None]),
        ("b", BOOL, [True, None]),
    ]
    frame = result([*columns, ("n", STRING, ["a", None])]).to_pandas()
    assert [str(kind) for kind in frame.dtypes][:3] == ["Int64", "UInt64", "boolean"]
    assert list(frame.columns) == ["n", "u", "b", "n"]
    assert (frame.iloc[0, 0], frame.iloc[0, 1], frame.iloc[0, 2]) == (huge, 2**64 - 1, True)
    assert frame.iloc[1].isna().all()


@pytest.mark.parametrize("days", [[2932897, None, 3], [-719163, 3], [-5_000_000]])
def test_pandas_gets_dates_that_python_has_none_for(days: list[int | None]) -> None:
    """Beyond the year 9999, and before the year 1."""
    table = pa.table(
        {
            "day": pa.array(days, pa.int32()).cast(pa.date32()),
            "days": pa.array([days for _ in days], pa.list_(pa.int32())).cast(pa.list_(pa.date32())),
        }
    )
    types = (DATE, ValueType(Scalar.DATE, is_list=True))
    frame = Result(table, types, "q", "main", None, None).to_pandas()
    assert str(frame["day"].dtype) == "datetime64[s]"
    seconds = [None if day is None else day * 86_400 for day in days]
    assert pa.array(frame["day"]).cast(pa.int64()).to_pylist() == seconds
    assert pa.array(frame["days"][0]).cast(pa.int64()).to_pylist() == seconds


def test_pandas_gets_other_dates_as_those_of_python() -> None:
    given = [date(1, 1, 1), date(9999, 12, 31), None]
    assert list(result([("day", DATE, given)]).to_pandas()["day"]) == given
    assert list(result([("day", DATE, [None])]).to_pandas()["day"]) == [None]


def test_polars_gets_the_same_values() -> None:
    columns = [
        (name, type_, [given, None]) for name, (type_, given, _) in EVERY_KIND.items() if name != "nan"
    ]
    found = result(columns)
    assert found.to_polars().to_dicts() == found.to_arrow().to_pylist()


def test_polars_takes_no_two_columns_of_one_name() -> None:
    with pytest.raises(BadRequest, match="2 columns are called 'x', which polars does not allow"):
        result([("x", I64, [1]), ("y", I64, [1]), ("x", I64, [2])]).to_polars()


# --- looks ---------------------------------------------------------------------------------------


def test_a_repr_is_a_table_with_numbers_to_the_right() -> None:
    assert repr(people()).splitlines() == [
        "2 rows from branch main via q",
        "name |  age",
        "-----+-----",
        "ada  |   36",
        "bo   | null",
    ]


def test_a_repr_names_the_snapshot_of_the_past() -> None:
    assert repr(people(branch=None, snapshot="01HZ")).startswith("2 rows from snapshot 01HZ via q\n")


def test_a_repr_shows_the_first_rows_and_counts_the_others() -> None:
    lines = repr(result([("n", I64, list(range(23)))])).splitlines()
    assert [line.strip() for line in lines[3:-1]] == [str(n) for n in range(20)]
    assert lines[-1] == "… 3 more rows"
    assert repr(result([("n", I64, list(range(21)))])).endswith("\n… 1 more row")
    assert "more" not in repr(result([("n", I64, list(range(20)))]))


def test_a_repr_of_nothing() -> None:
    assert repr(result([("n", I64, [])])).splitlines() == ["0 rows from branch main via q", "n", "-"]
    assert repr(Result(pa.table({}), (), "q", "main", None, None)).splitlines() == [
        "0 rows from branch main via q",
        "(no rows)",
    ]


@pytest.mark.parametrize("terminal", [30, 60, 100, 300])
@pytest.mark.parametrize("columns", [1, 2, 5, 40])
def test_a_repr_is_no_wider_than_the_terminal(
    terminal: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(terminal))
    values = ["short", "日本語" * 30, "a long text " * 20]
    lines = repr(result([(f"column{n}", STRING, values) for n in range(columns)])).splitlines()[1:]
    assert max(map(display_width, lines)) <= terminal
    assert len({line.count("|") for line in [lines[0], *lines[2:5]]}) == 1
    shown = lines[0].count("column")
    assert shown == columns or lines[-1] == f"… {columns - shown} more columns"


def test_narrowing_cuts_the_widest_columns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    found = result([("a", STRING, ["x" * 12]), ("b", STRING, ["y" * 70]), ("c", I64, [7])])
    assert repr(found).splitlines()[3] == f"{'x' * 12} | {'y' * 20}… | 7"


def test_wide_letters_keep_the_columns_straight() -> None:
    found = result([("a", STRING, ["日本", "ä", "e\u0301x", "abcd"]), ("b", STRING, ["1", "2", "3", "4"])])
    assert repr(found).splitlines()[1:] == [
        "a    | b",
        "-----+--",
        "日本 | 1",
        "ä    | 2",
        "e\u0301x   | 3",
        "abcd | 4",
    ]


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (None, "null"),
        ("null", '"null"'),
        ("", ""),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("two\u2028lines", r"two\u2028lines"),
        ("ä\u00a0日", "ä\u00a0日"),
        (True, "true"),
        (2**63, "9223372036854775808"),
        (0.1, "0.1"),
        ([1.5, None], "[1.5, null]"),
        (["ä", "\x9b"], r'["ä", "\x9b"]'),
    ],
)
def test_a_value_is_one_line_that_steers_no_terminal(value: Any, line: str) -> None:
    assert format_value(value) == line


class Reader(HTMLParser):
    """Collects tags and texts, as a browser would read them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_in_a_notebook_data_is_text_and_never_markup() -> None:
    evil = "<script>alert(\"1\")</script>&amp;<b x='y'>"
    found = result(
        [(evil, STRING, [evil, None]), ("list", ValueType(Scalar.STRING, is_list=True), [[evil], []])]
    )
    found = Result(found.table, found.types, evil, evil, None, None)
    page = found._repr_html_()
    reader = Reader()
    reader.feed(page)
    assert reader.tags == {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "em"}
    assert f"2 rows from branch {evil} via {evil}" in reader.texts
    assert reader.texts.count(evil) == 2
    assert html.escape(evil) in page


def test_a_notebook_shows_the_first_rows_and_null_apart_from_its_word() -> None:
    found = result([("n", I64, [None, *range(24)]), ("s", STRING, ["null", *("x" * 900 for _ in range(24))])])
    page = found._repr_html_()
    assert page.count("<tr>") == 21
    assert '<td style="text-align: right"><em style="opacity: 0.5">null</em></td>' in page
    assert '<td style="text-align: left">&quot;null&quot;</td>' in page
    assert "<div>… 5 more rows</div>" in page
    assert "x" * 199 + "…" in page
    assert "x" * 200 not in page


# --- as a fact -----------------------------------------------------------------------------------


def test_a_result_cannot_be_changed_and_survives_pickling() -> None:
    found = people()
    with pytest.raises(AttributeError):
        found.branch = "other"  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(found))
    assert again.envelope() == found.envelope()


def test_a_pickled_result_does_not_bring_along_the_columns_it_is_from() -> None:
    column = pa.array([f"text {at}" for at in range(100_000)])
    schema = pa.schema([pa.field("x", pa.string()), pa.field("x", pa.string())])
    facts: Any = ((STRING, STRING), "q", None, "snap", None)
    few = pa.Table.from_arrays([column.slice(500, 2)] * 2, schema=schema)
    for found in (Result(few, *facts), Result(OneRow([column, column], 7, schema), *facts)):
        pickled = pickle.dumps(found)
        again = pickle.loads(pickled)
        assert len(pickled) < 4000
        assert (again.tuples(), again.columns) == (found.tuples(), ["x", "x"])
        assert again.envelope() == found.envelope()


def test_the_face_of_the_package_has_it() -> None:
    assert og.Result is Result
