"""Selecting rows: by value, the same in Arrow, in Lance, and by the rules themselves."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.rows.json_columns import build_column
from omnigraph.engine.rows.predicate import (
    Bindings,
    Comparison,
    MatchesNothing,
    Presence,
    bind_predicate,
    filter_rows,
    render_predicate,
)
from omnigraph.errors import InvalidValue, ParameterError
from omnigraph.lang.query.terms import (
    ROW,
    Compare,
    Const,
    EntityId,
    Has,
    InList,
    Instant,
    NullCheck,
    ParamRef,
    Predicate,
    Prop,
    RelationOp,
    TextTest,
)
from omnigraph.lang.types import DATE, DATETIME, F64, I64, NUMBERS, STRING, Scalar, ValueType
from tests.examples import EXAMPLES

NONE = Bindings()
_OPERATORS: list[RelationOp] = ["=", "!=", "<", "<=", ">", ">="]
_EDGES = [
    0,
    1,
    -1,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**53,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64 - 1,
]
_TEXTS = ["", "a", "ab", "a'b", 'a"b', "a\\b", "%", "_", "é", "z", "\U0001f600", "\x00", "Z", "\ue000", "`"]
_FLOATS = [0.0, -0.0, 0.1, 1.5, -1.5, 5e-324, 1e300, -1e300, 2.0**53, 2.0**63, 1e-7, 123456789.123, 2.0**31]
VALUES: dict[Scalar, list[Any]] = {
    Scalar.STRING: _TEXTS,
    Scalar.BOOL: [True, False],
    Scalar.I32: [v for v in _EDGES if -(2**31) <= v < 2**31] + [7],
    Scalar.I64: [v for v in _EDGES if -(2**63) <= v < 2**63] + [7],
    Scalar.U32: [v for v in _EDGES if 0 <= v < 2**32] + [7],
    Scalar.U64: [v for v in _EDGES if 0 <= v < 2**64] + [7],
    Scalar.F32: [float(np.float32(v)) for v in _FLOATS if abs(v) < 1e38]
    + [float(np.float32(3e38)), 16777216.0],
    Scalar.F64: _FLOATS,
    Scalar.DATE: [0, 19723, -719528, 2932896, 2**31 - 1, -(2**31)],
    Scalar.DATETIME: [0, 1704067200000, -1, 2**63 - 1, -(2**63), -(10**14), 10**15],
}
COLUMNS = {f"Of_{scalar.value}": ValueType(scalar, nullable=True) for scalar in VALUES}
LISTS = {f"{name}s": ValueType(type_.scalar, nullable=True, is_list=True) for name, type_ in COLUMNS.items()}
_CONSTANTS: list[Any] = [
    *_EDGES,
    -(2**63) - 1,
    2**64,
    16777217,
    0.5,
    2.7,
    -2.7,
    36.0,
    1e39,
    -1e39,
    1e19,
    *_FLOATS,
]


def _rows() -> pa.Table:
    """Every value of every type, and a null."""
    count = max(map(len, VALUES.values())) + 1
    columns = {"id": pa.array([f"r{row:02}" for row in range(count)])}
    for name, type_ in COLUMNS.items():
        values = VALUES[type_.scalar]
        columns[name] = build_column([values[at] if at < len(values) else None for at in range(count)], type_)
        lists = [(values[at], values[0]) if at < len(values) else None for at in range(count - 1)]
        columns[f"{name}s"] = build_column([*lists, ()], LISTS[f"{name}s"])
    return pa.table(columns)


ROWS = _rows()


@pytest.fixture(scope="module", params=["scanned", "indexed"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    place: Path = tmp_path_factory.mktemp("rows") / "t.lance"
    made = lance.write_dataset(ROWS, place, data_storage_version="2.2", max_rows_per_file=8)
    if request.param == "indexed":
        for name, type_ in COLUMNS.items():
            made.create_scalar_index(name, "BITMAP" if type_.scalar is Scalar.BOOL else "BTREE")
    return lance.dataset(place)


# --- the rules themselves ------------------------------------------------------------------------


def _exact(value: Any, column: ValueType, *, rounds: bool) -> Any:
    if column.scalar is Scalar.F32 and isinstance(value, float) and rounds:
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if column.scalar is Scalar.STRING:
        return value.encode()
    return Fraction(value) if math.isfinite(value) else value


def _holds(op: str, left: Any, right: Any) -> bool:
    answers: dict[str, bool] = {
        "=": left == right, "!=": left != right, "<": left < right,
        "<=": left <= right, ">": left > right, ">=": left >= right,
    }  # fmt: skip
    return answers[op]


def _stored_values(name: str) -> list[Any]:
    column = ROWS.column(name)
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.to_pylist()  # type: ignore[no-any-return]


def _expected_rows(name: str, op: str, constant: Any) -> list[str]:
    type_ = COLUMNS[name]
    right = _exact(constant, type_, rounds=True)
    return [
        f"r{row:02}"
        for row, value in enumerate(_stored_values(name))
        if value is not None and _holds(op, _exact(value, type_, rounds=False), right)
    ]


def _both(dataset: lance.LanceDataset, predicate: Predicate, bindings: Bindings = NONE) -> list[str]:
    here = filter_rows(ROWS, predicate, bindings).column("id").to_pylist()
    there = (
        dataset.to_table(columns=["id"], filter=render_predicate(predicate, bindings))
        .column("id")
        .to_pylist()
    )
    assert here == there, render_predicate(predicate, bindings)
    return here  # type: ignore[no-any-return]


def _constant_for(type_: ValueType) -> st.SearchStrategy[Any]:
    if type_.scalar in NUMBERS:
        numbers = st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False)
        return st.sampled_from([*VALUES[type_.scalar], *_CONSTANTS]) | numbers
    if type_.scalar is Scalar.STRING:
        return st.sampled_from(_TEXTS) | st.text(max_size=3)
    return st.sampled_from(VALUES[type_.scalar])


def _constant_type(value: Any, type_: ValueType) -> ValueType:
    if type_.scalar not in NUMBERS:
        return type_
    return F64 if isinstance(value, float) else I64


@pytest.mark.fuzz
@settings(max_examples=2 * EXAMPLES)
@given(data=st.data(), name=st.sampled_from(list(COLUMNS)), op=st.sampled_from(_OPERATORS))
def test_comparisons_are_by_value_in_arrow_and_in_lance(
    dataset: lance.LanceDataset, data: st.DataObject, name: str, op: Any
) -> None:
    type_ = COLUMNS[name]
    value = data.draw(_constant_for(type_))
    term = ParamRef("x", _constant_type(value, type_))
    predicate = Compare(op, Prop(ROW, name, type_), term)
    assert _both(dataset, predicate, Bindings({"x": value})) == _expected_rows(name, op, value)


@pytest.mark.parametrize("name", list(COLUMNS))
def test_every_stored_value_is_found(dataset: lance.LanceDataset, name: str) -> None:
    for value in VALUES[COLUMNS[name].scalar]:
        predicate = Compare("=", Prop(ROW, name, COLUMNS[name]), ParamRef("x", COLUMNS[name]))
        assert _both(dataset, predicate, Bindings({"x": value})) == _expected_rows(name, "=", value) != []


@pytest.mark.parametrize("name", list(COLUMNS))
def test_an_index_answers_every_comparison(dataset: lance.LanceDataset, name: str) -> None:
    type_, has_index = COLUMNS[name], bool(dataset.describe_indices())
    prop, one = Prop(ROW, name, type_), ParamRef("x", type_)
    for value in VALUES[type_.scalar]:
        compared = [Compare(op, prop, one) for op in _OPERATORS]
        among = InList(prop, ParamRef("x", ValueType(type_.scalar, is_list=True)))
        filters = [render_predicate(predicate, Bindings({"x": value})) for predicate in compared]
        filters.append(render_predicate(among, Bindings({"x": (value, VALUES[type_.scalar][0])})))
        for filter_ in filters:
            plan = dataset.scanner(columns=["id"], filter=filter_).explain_plan(verbose=True)
            assert ("ScalarIndexQuery" in plan) is has_index, filter_


@pytest.mark.fuzz
@given(data=st.data(), name=st.sampled_from(list(COLUMNS)))
def test_in_is_equality_with_one_of_the_items(
    dataset: lance.LanceDataset, data: st.DataObject, name: str
) -> None:
    type_ = COLUMNS[name]
    values = tuple(data.draw(st.lists(_constant_for(type_), max_size=4)))
    predicate = InList(Prop(ROW, name, type_), ParamRef("x", ValueType(type_.scalar, is_list=True)))
    expected = sorted({row for value in values for row in _expected_rows(name, "=", value)})
    assert _both(dataset, predicate, Bindings({"x": values})) == expected


@pytest.mark.fuzz
@given(data=st.data(), name=st.sampled_from(list(COLUMNS)))
def test_a_list_has_an_item_by_value(dataset: lance.LanceDataset, data: st.DataObject, name: str) -> None:
    type_ = COLUMNS[name]
    value = data.draw(_constant_for(type_))
    predicate = Has(Prop(ROW, f"{name}s", LISTS[f"{name}s"]), ParamRef("x", _constant_type(value, type_)))
    right = _exact(value, type_, rounds=True)
    expected = [
        f"r{row:02}"
        for row, items in enumerate(_stored_lists(f"{name}s"))
        if any(_exact(item, type_, rounds=False) == right for item in items or ())
    ]
    assert _both(dataset, predicate, Bindings({"x": value})) == expected


def _stored_lists(name: str) -> list[Any]:
    column = ROWS.column(name)
    item = column.type.value_type
    plain = pa.int32() if pa.types.is_date32(item) else pa.int64() if pa.types.is_timestamp(item) else item
    return column.cast(pa.list_(plain)).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.fuzz
@given(part=st.sampled_from(_TEXTS), op=st.sampled_from(["contains", "starts_with"]))
def test_parts_of_texts_are_exact(dataset: lance.LanceDataset, part: str, op: Any) -> None:
    predicate = TextTest(op, Prop(ROW, "Of_String", STRING), Const(part, STRING))
    expected = [
        f"r{row:02}"
        for row, text in enumerate(_stored_values("Of_String"))
        if text is not None and (part in text if op == "contains" else text.startswith(part))
    ]
    assert _both(dataset, predicate) == expected


@pytest.mark.parametrize("name", [*COLUMNS, *LISTS])
def test_null_is_found_only_by_asking_for_it(dataset: lance.LanceDataset, name: str) -> None:
    prop = Prop(ROW, name, {**COLUMNS, **LISTS}[name])
    missing = [f"r{row:02}" for row, value in enumerate(ROWS.column(name)) if not value.is_valid]
    assert missing or name in LISTS
    assert _both(dataset, NullCheck(prop, negated=False)) == missing
    assert len(_both(dataset, NullCheck(prop, negated=True))) == ROWS.num_rows - len(missing)
    for op in ("=", "!=", "<", ">="):
        null = Bindings({"x": None})
        assert _both(dataset, Compare(op, prop, ParamRef("x", prop.type)), null) == []
    assert _both(dataset, InList(prop, ParamRef("x", prop.type)), Bindings({"x": None})) == []


def test_constants_dates_and_the_moment_of_the_request(dataset: lance.LanceDataset) -> None:
    day, moment = Prop(ROW, "Of_Date", DATE), Prop(ROW, "Of_DateTime", DATETIME)
    assert len(_both(dataset, Compare("=", day, Const("2024-01-01", DATE)))) == 1
    assert len(_both(dataset, Compare("=", moment, Const("2024-01-01T02:00:00+02:00", DATETIME)))) == 1
    assert len(_both(dataset, Compare("=", moment, Instant()), Bindings(now=1704067200000))) == 1
    listed = Const(("2024-01-01", "1970-01-01"), ValueType(Scalar.DATE, is_list=True))
    assert len(_both(dataset, InList(day, listed))) == 2
    assert _both(dataset, Compare(">", Const("r01", STRING), EntityId(ROW))) == ["r00"]
    with pytest.raises(InvalidValue, match="invalid Date literal 'soon'"):
        bind_predicate(Compare("=", day, Const("soon", DATE)), NONE)
    with pytest.raises(ParameterError, match="parameter 'x' not provided"):
        bind_predicate(Compare("=", day, ParamRef("x", DATE)), NONE)


@pytest.mark.parametrize(
    ("type_", "op", "value", "settled"),
    [
        (ValueType(Scalar.I32), "=", 2.7, MatchesNothing()),
        (ValueType(Scalar.I32), "<", 3_000_000_000, Presence("p")),
        (ValueType(Scalar.I32), ">", 3_000_000_000, MatchesNothing()),
        (ValueType(Scalar.U32), "!=", -1, Presence("p")),
        (ValueType(Scalar.I32), ">", -2.5, Comparison("p", ValueType(Scalar.I32), ">", -3)),
        (ValueType(Scalar.F32), "=", 0.1, Comparison("p", ValueType(Scalar.F32), "=", 0.10000000149011612)),
        (ValueType(Scalar.F32), "=", 16777217, MatchesNothing()),
        (ValueType(Scalar.F64), "<", 2**53 + 1, Comparison("p", F64, "<=", 2.0**53)),
        (ValueType(Scalar.F64), ">=", 2**53 + 1, Comparison("p", F64, ">", 2.0**53)),
        (ValueType(Scalar.F32), "<", 1e39, Presence("p")),
    ],
)
def test_constants_a_column_cannot_hold_are_settled_beforehand(
    type_: ValueType, op: Any, value: Any, settled: object
) -> None:
    assert (
        bind_predicate(Compare(op, Prop(ROW, "p", type_), Const(value, _constant_type(value, type_))), NONE)
        == settled
    )


@pytest.mark.parametrize(
    ("type_", "op", "value", "filter_"),
    [
        (STRING, "=", "it's", "`id` = 'it''s'"),
        (I64, "=", -7, "`id` = '-7'"),
        (I64, "=", 7.0, "`id` = '7'"),
        (I64, "=", 7.5, "false"),
        (I64, "<", 7, "`p` < 7"),
        (STRING, "!=", "a", "`p` <> 'a'"),
        (F64, "=", 0.5, "`p` = arrow_cast('0.5', 'Float64')"),
    ],
)
def test_a_key_is_looked_for_by_the_id_that_has_an_index(
    type_: ValueType, op: Any, value: Any, filter_: str
) -> None:
    predicate = Compare(op, Prop(ROW, "p", type_), Const(value, _constant_type(value, type_)))
    assert render_predicate(predicate, NONE, ["p"]) == filter_
    assert "`id`" not in render_predicate(predicate, NONE, ["p", "q"]), (
        "one of several does not make up the id"
    )
    assert "`id`" not in render_predicate(predicate, NONE, ["q"])
    if op == "=" and isinstance(value, str):
        among = InList(Prop(ROW, "p", type_), Const((value, "b"), ValueType(type_.scalar, is_list=True)))
        assert render_predicate(among, NONE, ["p"]) == "`id` IN ('it''s', 'b')"
