"""What mappings say about columns of CSV and of other files, and what is guessed about CSV files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.engine.load.sources.casts import cast_column
from omnigraph.errors import LoadRejected
from omnigraph.lang.types import Scalar

SCHEMA = "node Person { name: String @key  age: I32?  born: Date?  seen: DateTime?  ok: Bool?  real: F64? }"
MAY = dt.date(2019, 5, 31)


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "graph", schema=SCHEMA) as graph:
        yield graph


def load(graph: og.Graph, text: str, **mapping: Any) -> og.LoadResult:
    at = Path(graph.uri).parent / "p.csv"
    at.write_text(text, encoding="utf-8")
    return graph.load(at, type="Person", mode="overwrite", mapping=mapping or None)


def values(graph: og.Graph, name: str) -> list[Any]:
    found: list[Any] = graph.snapshot().rows("Person").sort_by("name").column(name).to_pylist()
    return found


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_is_guessed_and_reported(graph: og.Graph, delimiter: str) -> None:
    done = load(graph, f'name{delimiter}real\n"a{delimiter}b"{delimiter}1.5\nc{delimiter}2\n')
    assert values(graph, "real") == [1.5, 2.0]
    assert list(done.dialects.values()) == [f"delimiter {delimiter!r}"]
    assert load(graph, "name,real\na;b,1\n").dialects == {}
    assert load(graph, "name\na\n").dialects == {}


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["31.05.2019", "31.05.2019"], "%d.%m.%Y"),
        (["2019/05/31", "2019/05/31"], "%Y/%m/%d"),
        (["31/05/2019", ""], "%d/%m/%Y"),
        (["05/31/2019", "05/31/2019"], "%m/%d/%Y"),
    ],
)
def test_dates_that_can_be_read_in_one_way_are_guessed(graph: og.Graph, texts: list[str], found: str) -> None:
    done = load(graph, f"name,born\na,{texts[0]}\nb,{texts[1]}\n")
    assert values(graph, "born") == [MAY if text else None for text in texts]
    assert list(done.dialects.values()) == [f"dates as {found}"]


def test_dates_that_can_be_read_in_two_ways_need_a_format(graph: og.Graph) -> None:
    text = "name,born,seen\na,04/05/2019,05/05/2019\n"
    with pytest.raises(LoadRejected, match='expects Date32, got "04/05/2019"'):
        load(graph, text)
    done = load(graph, text, date_format="%d/%m/%Y")
    assert values(graph, "born") == [dt.date(2019, 5, 4)]
    assert done.dialects == {}
    load(graph, "name,born,seen\na,2019-05-04,04.05.2019\n", date_format="%d.%m.%Y")
    assert values(graph, "seen") == [dt.datetime(2019, 5, 4, tzinfo=dt.UTC)]
    with pytest.raises(LoadRejected, match=r':3: strict property .born. expects Date32, got "32\.01\.2020"'):
        load(graph, "name,born\na,31.01.2020\nb,32.01.2020\n", date_format="%d.%m.%Y")


@pytest.mark.parametrize("text", ["31.02.2019", "29.02.2023", "31.12.24"])
def test_dates_that_no_calendar_has_are_never_other_dates(graph: og.Graph, text: str) -> None:
    for mapping in ({}, {"date_format": "%d.%m.%Y"}):
        with pytest.raises(LoadRejected, match=f'expects Date32, got "{text}"'):
            load(graph, f"name,born\na,{text}\n", **mapping)


@pytest.mark.parametrize(
    ("date_format", "text"),
    [
        ("%d.%m.%Y", "31. 5.2019"),
        ("%d-%b-%y", "31-May-19"),
        ("%Y%m%d", "20190531"),
        ("%B %e, %Y", "May 31, 2019"),
        ("%Y-%j", "2019-151"),
        ("%d/%m/%Y %I:%M %p", "31/05/2019 12:00 AM"),
    ],
)
def test_dates_of_many_formats(graph: og.Graph, date_format: str, text: str) -> None:
    load(graph, f'name,born\na,"{text}"\n', date_format=date_format)
    assert values(graph, "born") == [MAY]


def test_names_can_come_from_the_mapping(graph: og.Graph) -> None:
    assert load(graph, "ada,36\nbo,\n", header=["name", "age"]).total == 2
    assert values(graph, "age") == [36, None]
    with pytest.raises(LoadRejected, match="invalid CSV at line 2: expected 2 fields, got 1"):
        load(graph, "ada,36\nbo\n", header=["name", "age"])


@pytest.mark.parametrize(
    ("column", "cast", "expected"),
    [
        (["36", "36.7"], {"age": "I32"}, [36, 36]),
        ([36.7, -36.7], {"age": "I32"}, [36, -36]),
        ([True, None], {"age": "I32"}, [1, None]),
        (pa.array([1, 0]), {"ok": "Bool"}, [True, False]),
        (["TRUE", None], {"ok": "Bool"}, [True, None]),
        (["1.5", "2"], {"real": "F64"}, [1.5, 2.0]),
        (pa.array([dt.datetime(2019, 5, 31, 10, tzinfo=dt.UTC), None]), {"born": "Date"}, [MAY, None]),
    ],
)
def test_a_cast_converts_values_with_loss(
    graph: og.Graph, column: Any, cast: dict[str, str], expected: list[Any]
) -> None:
    (name,) = cast
    rows = pa.table({"name": ["a", "b"], name: pa.array(column)})
    graph.load(rows, type="Person", mode="overwrite", mapping={"cast": cast})
    assert values(graph, name) == expected


def test_a_cast_of_texts_keeps_integers_beside_fractions() -> None:
    for scalar, most in (("I64", 2**63 - 1), ("U64", 2**64 - 1)):
        done = cast_column(pa.array([str(most), "1.5", None, "x", "2e19"]), "p", Scalar[scalar])
        assert done.array.to_pylist() == [most, 1, None, None, None]
        assert list(done.faults) == [3, 4]


@pytest.mark.parametrize("scalar", [Scalar.I64, Scalar.STRING, Scalar.DATE])
def test_a_cast_never_makes_null_of_bytes_that_are_no_text(scalar: Scalar) -> None:
    done = cast_column(pa.array([b"\xff", None], pa.binary()), "p", scalar)
    assert list(done.faults) == [0]
    assert "got text that is not UTF-8" in done.faults[0]


def test_a_cast_to_text_makes_keys_of_numbers(graph: og.Graph) -> None:
    graph.load(
        pd.DataFrame({"name": [1, 2]}), type="Person", mode="overwrite", mapping={"cast": {"name": "String"}}
    )
    assert values(graph, "name") == ["1", "2"]
    load(graph, "name,age\na,36.9\n", cast={"age": "I32"})
    assert values(graph, "age") == [36]


def test_what_cannot_be_cast_is_reported_with_its_row(graph: og.Graph) -> None:
    rows = pa.table({"name": ["a", "b", "c"], "age": ["1", "x", "1e30"]})
    with pytest.raises(LoadRejected) as refused:
        graph.load(rows, type="Person", mode="append", mapping={"cast": {"age": "I32"}})
    assert [(one.line, one.reason) for one in refused.value.violations] == [
        (2, "strict property 'age' expects Int32, got \"x\""),
        (3, "property 'age' value 1e+30 exceeds Int32 range"),
    ]


def test_a_column_of_another_type_names_the_cast_that_helps(graph: og.Graph) -> None:
    with pytest.raises(LoadRejected) as refused:
        graph.load([{"name": "a", "age": "36"}], type="Person", mode="append")
    assert (refused.value.remedy or "").endswith("; `cast: {age: I32}` in a mapping converts the values")
    with pytest.raises(LoadRejected, match="the mapping names a column 'agee'"):
        graph.load([{"name": "a"}], type="Person", mode="append", mapping={"cast": {"agee": "I32"}})


def test_the_command_line_reports_what_was_guessed(
    graph: og.Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "Person.csv"
    data.write_text("name;born\na;31.05.2019\n", encoding="utf-8")
    assert main(["load", graph.uri, "--data", str(data), "--mode", "append"]) == 0
    assert f"{data}: guessed delimiter ';', dates as %d.%m.%Y" in capsys.readouterr().err
