"""Frames as people have them: each loads, with these values, or is refused with this reason."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import LoadRejected

SCHEMA = """
node Row {
  k: String @key
  text: String?
  flag: Bool?
  small: I32?
  big: I64?
  unsigned: U64?
  real: F64?
  must: I64?
  day: Date?
  moment: DateTime?
  tags: [String]?
  numbers: [I64]?
  vector: Vector(2)?
  kind: enum(a, b)?
  bytes: Blob?
}
node Strict { k: I64 @key  real: F64 }
edge Link: Row -> Row { weight: F64? }
"""

NAN = float("nan")
DAY = dt.date(2024, 1, 1)
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
MIDNIGHT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
ROME = pd.to_datetime(["2024-01-01 13:00", None]).tz_localize("Europe/Rome")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    with og.init(tmp_path_factory.mktemp("shapes") / "g", schema=SCHEMA) as graph:
        yield graph


def _frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"k": ["x", "y"], **columns})


LOADED: dict[str, tuple[Any, str, list[Any]]] = {
    "integers in floats, one missing": (_frame(big=[36, None]), "big", [36, None]),
    "integers of pandas that may be missing": (_frame(big=pd.array([36, None], "Int64")), "big", [36, None]),
    "integers as objects": (_frame(big=np.array([36, None], object)), "big", [36, None]),
    "integers of 8 bits": (_frame(small=np.array([1, 2], np.int8)), "small", [1, 2]),
    "integers over 2^63": (_frame(unsigned=[2**64 - 1, 0]), "unsigned", [2**64 - 1, 0]),
    "integers over 2^63 in rows": (
        [{"k": "x", "unsigned": 2**64 - 1}, {"k": "y"}],
        "unsigned",
        [2**64 - 1, None],
    ),
    "floats, one NaN": (_frame(real=[1.5, NAN]), "real", [1.5, None]),
    "floats of polars, one NaN": (pl.DataFrame({"k": ["x", "y"], "real": [1.5, NAN]}), "real", [1.5, None]),
    "floats of 32 bits": (_frame(real=np.array([1.5, 2], np.float32)), "real", [1.5, 2.0]),
    "integers for floats": (_frame(real=[1, 2]), "real", [1.0, 2.0]),
    "booleans as objects": (_frame(flag=np.array([True, None], object)), "flag", [True, None]),
    "booleans of pandas that may be missing": (
        _frame(flag=pd.array([True, None], "boolean")),
        "flag",
        [True, None],
    ),
    "text with NaN": (_frame(text=np.array(["a", NAN], object)), "text", ["a", None]),
    "text of pandas' own type": (_frame(text=pd.array(["a", None], "string")), "text", ["a", None]),
    "categories": (_frame(text=pd.Categorical(["a", None])), "text", ["a", None]),
    "categories for an enum": (_frame(kind=pd.Categorical(["a", "b"])), "kind", ["a", "b"]),
    "categories of polars": (
        pl.DataFrame({"k": ["x", "y"], "kind": pl.Series(["b", "a"], dtype=pl.Categorical)}),
        "kind",
        ["b", "a"],
    ),
    "UUIDs": (_frame(text=[UUID(int=1), None]), "text", [str(UUID(int=1)), None]),
    "decimals without a fraction": (_frame(big=[Decimal("7.00"), None]), "big", [7, None]),
    "decimals as floats": (_frame(real=[Decimal("0.10"), None]), "real", [0.1, None]),
    "decimals as text": (_frame(text=[Decimal("0.10"), None]), "text", ["0.10", None]),
    "days as objects": (_frame(day=[DAY, None]), "day", [DAY, None]),
    "moments at midnight for days": (_frame(day=pd.to_datetime(["2024-01-01", None])), "day", [DAY, None]),
    "midnights of a zone for days": (
        _frame(day=pd.to_datetime(["2024-01-01", None]).tz_localize("America/New_York")),
        "day",
        [DAY, None],
    ),
    "moments of a zone": (_frame(moment=ROME), "moment", [NOON, None]),
    "moments without a zone": (
        _frame(moment=pd.to_datetime(["2024-01-01", None])),
        "moment",
        [MIDNIGHT, None],
    ),
    "days for moments": (_frame(moment=[DAY, None]), "moment", [MIDNIGHT, None]),
    "NaT in rows": ([{"k": "x", "moment": pd.NaT}, {"k": "y", "moment": NOON}], "moment", [None, NOON]),
    "scalars of NumPy in rows": (
        [{"k": "x", "big": np.int16(3)}, {"k": "y", "big": None}],
        "big",
        [3, None],
    ),
    "moments of NumPy in rows": (
        [{"k": "x", "moment": np.datetime64("2024-01-01")}, {"k": "y"}],
        "moment",
        [MIDNIGHT, None],
    ),
    "NA of pandas in rows": ([{"k": "x", "big": pd.NA}, {"k": "y", "big": 1}], "big", [None, 1]),
    "lists": (_frame(tags=[["a", "b"], None]), "tags", [["a", "b"], None]),
    "arrays of NumPy": (_frame(numbers=[np.array([1, 2]), np.array([], int)]), "numbers", [[1, 2], []]),
    "lists of whole floats": (_frame(numbers=[[1.0, 2.0], None]), "numbers", [[1, 2], None]),
    "vectors as lists": (_frame(vector=[[0.5, 1.0], None]), "vector", [[0.5, 1.0], None]),
    "vectors as arrays of polars": (
        pl.DataFrame({"k": ["x", "y"], "vector": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int32, 2))}),
        "vector",
        [[1.0, 2.0], [3.0, 4.0]],
    ),
    "a column without any value": (_frame(big=[None, None]), "big", [None, None]),
    "an index, which is no column": (_frame(big=[1, 2]).set_index(pd.Index([7, 8])), "big", [1, 2]),
    "an Arrow table in chunks": (
        pa.concat_tables([pa.table({"k": ["x"], "big": [1]}), pa.table({"k": ["y"], "big": [2]})]),
        "big",
        [1, 2],
    ),
}

REFUSED: dict[str, tuple[Any, str]] = {
    "a fraction for an integer": (
        _frame(big=[1.0, 36.5]),
        "<rows of Row>: row 2: strict property 'big' expects Int64, got 36.5",
    ),
    "a float too large to be exact": (
        _frame(big=[2.0**60, 1]),
        "<rows of Row>: row 1: property 'big' value 1152921504606846976 is beyond what a float holds exactly",
    ),
    "infinity": (
        _frame(real=[1.0, np.inf]),
        "<rows of Row>: row 2: property 'real': float value Infinity must be finite",
    ),
    "an integer out of range": (
        _frame(small=[1, 2**40]),
        "<rows of Row>: row 2: property 'small' value 1099511627776 exceeds Int32 range",
    ),
    "a decimal that a float would round": (
        _frame(real=[Decimal("0.12345678901234567890"), None]),
        "<rows of Row>: row 1: property 'real' value 0.1234567890123456789 is not exact in Float64",
    ),
    "a moment within a day": (
        _frame(day=pd.to_datetime(["2024-01-01 00:00", "2024-01-01 10:00"])),
        "<rows of Row>: row 2: strict property 'day' expects Date32, got \"2024-01-01T10:00:00.000Z\"",
    ),
    "a category that is not in the enum": (
        _frame(kind=pd.Categorical(["a", "c"])),
        "<rows of Row>: row 2: invalid enum value 'c' for Row.kind (expected: a, b)",
    ),
    "a list with a missing item": (
        _frame(tags=[["a", None], None]),
        "<rows of Row>: row 1: strict list property 'tags' contains a null or invalid item",
    ),
    "a vector of another length": (
        _frame(vector=[[1.0], [1.0, 2.0]]),
        "<rows of Row>: row 1: vector property 'vector' expects 2 dimensions, got 1",
    ),
    "text for a number": (
        _frame(big=["36", "37"]),
        "<rows of Row>: strict property 'big' expects Int64, got string",
    ),
    "numbers for text": (
        _frame(text=[1, 2]),
        "<rows of Row>: strict property 'text' expects Utf8, got int64",
    ),
}


@pytest.mark.parametrize(("data", "name", "values"), LOADED.values(), ids=LOADED)
def test_a_frame_loads_as_it_is(graph: og.Graph, data: Any, name: str, values: list[Any]) -> None:
    done = graph.load(data, type="Row", mode="overwrite")
    rows = graph.snapshot().rows("Row").sort_by("k")
    assert rows.column(name).to_pylist() == values
    assert done.null_counts == ({f"Row.{name}": nulls} if (nulls := values.count(None)) else {})


@pytest.mark.parametrize(("data", "message"), REFUSED.values(), ids=REFUSED)
def test_a_frame_that_would_lose_something_is_refused(graph: og.Graph, data: Any, message: str) -> None:
    with pytest.raises(LoadRejected) as refused:
        graph.load(data, type="Row", mode="overwrite")
    assert [str(one) for one in refused.value.violations] == [message]


def test_a_required_property_refuses_nan(graph: og.Graph) -> None:
    with pytest.raises(LoadRejected) as refused:
        graph.load([{"k": 1, "real": NAN}], type="Strict", mode="append")
    assert refused.value.message == (
        "<rows of Strict>: row 1: property 'real': float value NaN must be finite"
    )


@pytest.mark.parametrize("ends", [("from", "to"), ("src", "dst"), ("source", "target")])
def test_ends_have_the_names_that_programs_write(graph: og.Graph, ends: tuple[str, str]) -> None:
    graph.branches.create("_".join(ends))
    rows = pd.DataFrame({"k": ["x", "y"]})
    edges = pd.DataFrame({ends[0]: ["x"], ends[1]: ["y"], "weight": [1]})
    done = graph.load({"Row": rows, "Link": edges}, mode="overwrite", branch="_".join(ends))
    assert (dict(done.nodes), dict(done.edges)) == ({"Row": 2}, {"Link": 1})


def test_two_frames_are_a_graph_in_one_call(tmp_path: Path) -> None:
    people = pd.DataFrame({"Handle": ["ada", "bo"], "age": [36, None]})
    knows = pl.DataFrame({"who": ["ada"], "whom": ["bo"], "since": [2019]})
    with og.from_frames(tmp_path / "g", {"Person": people}, {("Person", "Knows", "Person"): knows}) as graph:
        rows = graph.query(
            "query q() { match { $a: Person  $a knows $b } return { $a.handle, $a.age, $b.handle } }"
        )
        assert list(map(dict, rows)) == [{"a.handle": "ada", "a.age": 36, "b.handle": "bo"}]
        assert "  age: I64?  // whole numbers, in floats because some are missing" in graph.schema_source


def test_a_call_that_failed_by_its_rows_can_be_repeated(tmp_path: Path) -> None:
    people, knows = [{"k": "a"}, {"k": "b"}], [{"from": "a", "to": "c"}]
    with pytest.raises(LoadRejected) as refused:
        og.from_frames(tmp_path / "g", {"P": people}, {"K": knows})
    assert refused.value.__notes__[-1].endswith("was created and is empty; fix the rows, and call again")
    with og.from_frames(tmp_path / "g", {"P": people}, {"K": [{"from": "a", "to": "b"}]}) as graph:
        assert graph.snapshot().tables["edge:K"].rows == 1


def test_a_column_that_no_property_can_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(og.errors.BadRequest, match="the column 'd' of P cannot be loaded"):
        og.from_frames(tmp_path / "g", {"P": [{"k": "a", "d": {"x": 1}}]})
    assert not (tmp_path / "g").exists()
