"""Rows in memory as input: Arrow, pandas and polars."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.load.sources import columnar
from omnigraph.engine.load.sources.item_reader import read_item
from omnigraph.engine.load.sources.mapping import build_mapping
from omnigraph.engine.load.spool import as_arrow, is_table
from omnigraph.errors import BadRequest, LoadRejected, OmnigraphError
from tests.engine.load.sources.support import person_table, plan, read, reader

Spool = Callable[..., Path]

COLUMNS: dict[str, Any] = {
    "handle": ["ada", "bo", "cy"],
    "age": [36, 20, 1],
    "score": [1.5, None, 2.0],
    "active": [True, False, True],
    "born": [date(2001, 2, 3)] * 3,
    "seen": [
        datetime.fromisoformat("2024-05-01T10:30:00"),
        None,
        datetime.fromisoformat("1969-12-31T23:59:59.999500"),
    ],
    "role": ["dev", "lead", None],
    "tags": [["x"], [], ["y", "z"]],
    "face": [[1.0, 2.0], [0.5, 0.25], [3.0, 4.0]],
}


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """Rows in memory, put aside as a file named after their type."""

    def write(data: Any, type_name: str = "Person") -> Path:
        rows, file = as_arrow(data), tmp_path / f"{type_name}.arrow"
        # A stream: in a file a column of few different texts must list them all at once.
        with file.open("wb") as sink, pa.ipc.new_stream(sink, rows.schema) as writer:
            for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
                writer.write_batch(batch)
        return file

    return write


def _inputs() -> dict[str, Any]:
    table = pa.table(COLUMNS)
    pandas = pd.DataFrame(COLUMNS)
    pandas["role"] = pandas["role"].astype("category")
    return {
        "table": table,
        "batch": table.combine_chunks().to_batches()[0],
        "parts with codes of their own": pa.concat_tables(
            part.set_column(6, "role", part.column("role").combine_chunks().dictionary_encode())
            for part in (table.slice(0, 1), table.slice(1))
        ),
        "reader": table.to_reader(max_chunksize=2),
        "pandas": pandas.set_index(pd.Index([7, 8, 9])),
        "pandas arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": pl.DataFrame(COLUMNS),
        "polars typed": pl.DataFrame(COLUMNS).with_columns(
            pl.col("role").cast(pl.Enum(["dev", "lead"])), pl.col("face").cast(pl.Array(pl.Float32, 2))
        ),
    }


@pytest.mark.parametrize("kind", list(_inputs()))
def test_frames_of_every_kind_give_the_same_rows(kind: str, spool: Spool) -> None:
    assert is_table(_inputs()[kind])
    found = read(spool(_inputs()[kind]))
    assert found.violations == []
    rows = found.rows["node:Person"]
    assert [row["handle"] for row in rows] == ["ada", "bo", "cy"]
    assert [row["score"] for row in rows] == [1.5, None, 2.0]
    assert [row["seen"] for row in rows] == [1_714_559_400_000, None, -1]
    assert [row["role"] for row in rows] == ["dev", "lead", None]
    assert [row["tags"] for row in rows] == [["x"], [], ["y", "z"]]
    assert [row["face"] for row in rows] == [[1.0, 2.0], [0.5, 0.25], [3.0, 4.0]]
    assert [str(row["born"]) for row in rows] == ["2001-02-03"] * 3


def test_dates_of_pandas_are_midnights(spool: Spool) -> None:
    frame = pd.DataFrame({"handle": ["a"], "born": pd.to_datetime(["2001-02-03"])})
    assert str(read(spool(frame)).rows["node:Person"][0]["born"]) == "2001-02-03"


def test_rows_that_are_wrong_are_reported_by_their_number(spool: Spool) -> None:
    found = read(spool(pa.table({"handle": ["a", "b", "c"], "age": [1, -1, 999]})))
    assert found.problems == [
        (2, "@range violation on Person.age: value -1 < min 0"),
        (3, "@range violation on Person.age: value 999 > max 150"),
    ]
    assert [row["handle"] for row in found.rows["node:Person"]] == ["a"]


def test_names_of_files_are_no_tables() -> None:
    assert not is_table("people.parquet")
    assert not is_table(["people.parquet"])


def test_columns_and_types_are_checked_before_rows(spool: Spool) -> None:
    with pytest.raises(LoadRejected, match="unknown input field 'nick' for 'node:Person'"):
        read(spool(pa.table({"handle": ["a"], "nick": ["b"]})))
    with pytest.raises(BadRequest, match="these rows cannot be read as Arrow"):
        read(spool(pd.DataFrame({"handle": ["a", 1]})))


def test_edges_come_from_frames_and_a_mapping_renames_columns(spool: Spool) -> None:
    mapping = build_mapping({"inputs": [{"files": "*.arrow", "from": "a", "to": "b"}]})
    (row,) = read(spool(pl.DataFrame({"a": ["ada"], "b": ["bo"]}), "Knows"), mapping=mapping).rows[
        "edge:Knows"
    ]
    assert (row["src"], row["dst"]) == ("ada", "bo")


def test_blocks_with_few_large_values_are_halved(monkeypatch: pytest.MonkeyPatch, spool: Spool) -> None:
    file = spool(pa.table({"text": ["x" * 1000] * 64}), "Note")
    whole = read(file)
    monkeypatch.setattr(columnar, "BLOCK_BYTES", 5000)
    (item,) = plan(file)
    assert len(list(read_item(item, reader()))) == 16
    assert read(file) == whole


def test_slices_are_read_as_what_they_show(spool: Spool) -> None:
    people = person_table()
    assert read(spool(people.slice(1, 2))).rows["node:Person"] == read(spool(people)).rows["node:Person"][1:3]


def _numbers(values: list[Any]) -> dict[str, Any]:
    rows = [{"id": str(place), "n": value} for place, value in enumerate(values)]
    return {"rows": rows, "pandas": pd.DataFrame(rows, dtype=object)}


@pytest.mark.parametrize("kind", ["rows", "pandas"])
@pytest.mark.parametrize(
    ("type_", "values"),
    [
        ("U64?", [2**64 - 1, 0, 2**63]),
        ("U64?", [None, 2**63]),
        ("F64?", [2**63, 0.5, None]),
        ("F64?", [2**63]),
        ("[U64]?", [[2**63, 1], [], None]),
        ("[F64]?", [[2.0**70, 0.5], [2**63, 1]]),
    ],
)
def test_integers_over_half_of_64_bits_are_loaded(
    tmp_path: Path, kind: str, type_: str, values: list[Any]
) -> None:
    with og.init(tmp_path / "g.omni", schema=f"node N {{ n: {type_} }}") as graph:
        graph.load(_numbers(values)[kind], type="N", mode="append")
        assert graph.snapshot().rows("N").sort_by("id").column("n").to_pylist() == values


@pytest.mark.parametrize("kind", ["rows", "pandas"])
@pytest.mark.parametrize(
    ("type_", "values", "reason"),
    [
        ("I64?", [2**63], "property 'n' value 9223372036854775808 exceeds Int64 range"),
        ("String?", [2**63], "strict property 'n' expects Utf8, got uint64"),
        ("U64?", [2**64], "the value 18446744073709551616 of 'n' does not fit into 64 bits"),
        ("U64?", [-1, 2**63], "'n' has both -1 and 9223372036854775808"),
        ("U64?", [2**63, "x"], "do not fit together|cannot be read as Arrow"),
    ],
)
def test_integers_that_the_type_does_not_hold_are_refused_by_value(
    tmp_path: Path, kind: str, type_: str, values: list[Any], reason: str
) -> None:
    with (
        og.init(tmp_path / "g.omni", schema=f"node N {{ n: {type_} }}") as graph,
        pytest.raises(OmnigraphError, match=reason),
    ):
        graph.load(_numbers(values)[kind], type="N", mode="append")
