"""Rows as JSON, made by columns: the bytes are those of rows that are encoded one by one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from omnigraph.client.results import parse_type
from omnigraph.lang.types import ValueType
from omnigraph.lang.values import arrow_type
from omnigraph.query.result import Result
from omnigraph.server.wire.json_rows import FEWEST, encode_rows

VALUES: dict[str, Sequence[Any]] = {
    "String": ["a", "", "ü 漢 🙂", 'quo"te', "back\\slash", "line\nend", "\x00\x1f\x7f", "</script>\u2028"],
    "String?": ["plain", None, "text"],
    "enum(x, y)": ["x", "y"],
    "I32?": [0, -(2**31), 2**31 - 1, None],
    "I64": [2**63 - 1, -(2**63), 0],
    "U64": [2**64 - 1, 0],
    "Bool?": [True, False, None],
    "F64?": [0.0, -0.0, 1.5, 1e300, 5e-324, float("nan"), float("inf"), float("-inf"), None],
    "F32": [0.1, 3.0],
    "Date?": [date(1815, 12, 10), None],
    "DateTime": [datetime(2030, 1, 31, 12, tzinfo=UTC), datetime(1960, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)],
    "[String]?": [["a", 'b"'], [], None],
    "[I32]": [[1, 2], []],
    "Vector(2)": [[1.0, 2.5], [0.0, -1.0]],
}


def result_of(types: Sequence[str], rows: int, names: Sequence[str] | None = None) -> Result:
    kinds: list[ValueType] = [parse_type(text) for text in types]
    columns = []
    for text, kind in zip(types, kinds, strict=True):
        values = VALUES[text]
        columns.append(pa.array([values[at % len(values)] for at in range(rows)], arrow_type(kind)))
    named = list(names or (f"p.{text}" for text in types))
    return Result(pa.table(columns, names=named), tuple(kinds), "q", "main", None, None)


def joined(result: Result) -> bytes:
    return b"".join(encode_rows(result))


@pytest.mark.parametrize("rows", [0, 1, FEWEST - 1, FEWEST, 3 * FEWEST + 1])
def test_columns_give_the_bytes_of_rows(rows: int) -> None:
    result = result_of(list(VALUES), rows)
    assert joined(result) == msgspec.json.encode(result.rows())


@pytest.mark.parametrize("text", VALUES)
def test_each_type_gives_the_bytes_of_rows(text: str) -> None:
    result = result_of([text], FEWEST, ['odd "name" é\\'])
    assert joined(result) == msgspec.json.encode(result.rows())


def test_names_that_repeat_give_one_member(monkeypatch: pytest.MonkeyPatch) -> None:
    result = result_of(["I64", "String"], FEWEST, ["same", "same"])
    assert joined(result) == msgspec.json.encode(result.rows())
    monkeypatch.setattr("omnigraph.server.wire.json_rows.BATCH", 100)
    cut = result_of(["I64", "String"], FEWEST)
    assert joined(cut) == msgspec.json.encode(cut.rows())
