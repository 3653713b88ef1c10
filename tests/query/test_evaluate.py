"""Terms and predicates on columns: by value and exactly, whatever the widths and forms of the operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.rows.json_columns import build_column
from omnigraph.errors import InternalError
from omnigraph.lang.query.compile import CompiledRead, compile_query
from omnigraph.lang.query.plan import Scan, inputs
from omnigraph.lang.query.terms import (
    Calc,
    CaseFold,
    Column,
    Compare,
    Const,
    EntityId,
    Has,
    Holds,
    InList,
    Instant,
    Minus,
    ParamRef,
    PathPart,
    Predicate,
    Prop,
    Relevance,
    Term,
    TextMatch,
    TextTest,
    Total,
)
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.types import (
    BOOL,
    DATE,
    DATETIME,
    F64,
    I64,
    INTEGERS,
    STRING,
    Scalar,
    ValueType,
    vector_type,
)
from omnigraph.lang.values import arrow_type, integer_bounds
from omnigraph.query.expressions.evaluate import evaluate_predicate, evaluate_term
from tests.examples import EXAMPLES

NOW = 1_704_067_200_000


@dataclass
class Rows:
    """Columns by name; the variable does not matter."""

    length: int
    columns: Mapping[str, pa.Array] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[Term, pa.Array] = field(default_factory=dict)

    def prop(self, var: str, name: str) -> pa.Array:
        return self.columns[name]

    def entity_id(self, var: str) -> pa.Array:
        return self.columns["id"]

    def column(self, name: str) -> pa.Array:
        return self.columns[name]

    def parameter(self, name: str) -> Any:
        return self.parameters[name]

    def now(self) -> int:
        return NOW

    def score(self, term: Term) -> pa.Array:
        return self.scores[term]

    def path(self, term: PathPart) -> pa.Array:
        raise AssertionError(f"there are no paths here: {term}")


def prop(name: str, type_: ValueType) -> Prop:
    return Prop("x", name, type_.with_nullable())


def list_of(scalar: Scalar) -> ValueType:
    return ValueType(scalar, nullable=True, is_list=True)


def off_start(values: Sequence[Any], type_: ValueType) -> pa.Array:
    """A column that begins in the middle of its memory, as slices of larger ones do."""
    return build_column([None, *values, None], type_).slice(1, len(values))


# --- filters as they are written -------------------------------------------------------------------

CATALOG = compile_schema("""
node Item {
  k: String @key  i32: I32?  i64: I64?  u64: U64?  f32: F32?  f64: F64?  s: String?  t: String?  b: Bool?
  d: Date?  at: DateTime?  role: enum(dev, lead)?  words: [String]?  wholes: [I64]?  reals: [F32]?
  v: Vector(2)?  raw: Blob?
}
""")
DAY = 86_400_000
ITEMS: dict[str, tuple[Any, ...]] = {
    "k": ("a", "b", "c", "n"),
    "i32": (36, 20, 2, None),
    "i64": (2**53 + 1, 2**53, -(2**63), None),
    "u64": (2**64 - 1, 2**63, 0, None),
    "f32": (0.1, 16777216.0, -0.0, None),
    "f64": (2.0**53, 2.0**53, 2.0**63, None),
    "s": ("ada bo", "Ä", "", None),
    "t": ("bo", "Ä", "x", None),
    "b": (True, False, True, None),
    "d": (19723, 0, -1, None),
    "at": (NOW, 0, NOW + 1, None),
    "role": ("lead", "dev", "dev", None),
    "words": (("x", "bo"), ("Ä",), (), None),
    "wholes": ((36, 1), (20,), (2**53 + 1,), None),
    "reals": ((0.1,), (1.0, 2.0), (0.0,), None),
    "v": ((1.0, 2.0), (0.0, 0.0), None, None),
}
TYPES = {name: CATALOG.nodes["Item"].properties[name].type for name in ITEMS}
ITEM_ROWS = Rows(
    4,
    {
        **{name: off_start(values, TYPES[name]) for name, values in ITEMS.items()},
        "id": pa.array(["a", "b", "c", None]),
        "raw": pa.array([{"data": b""}, {"data": b"1"}, None, None]),
    },
    {"f": 0.1, "nothing": None, "few": (36.0, 20.5), "text": "bob", "words": ("bo", "y"), "narrow": 0.1},
)
PARAMETERS = "$f: F64, $nothing: I32?, $few: [F64], $text: String, $words: [String], $narrow: F32"

FILTERS = """
$x.i32 = 36.0                         -> a
$x.i32 = 36.5                         ->
$x.i32 != 36.5                        -> a b c
$x.i32 < 3000000000                   -> a b c
$x.i32 > 3000000000                   ->
$x.i32 > 19.5                         -> a b
19.5 < $x.i32                         -> a b
$x.i32 != 36                          -> b c
$x.i32 = $nothing                     ->
$x.i32 != $nothing                    ->
$x.i64 = 9007199254740993             -> a
$x.i64 = 9007199254740992.0           -> b
$x.i64 = $x.f64                       -> b
$x.i64 > $x.f64                       -> a
$x.f64 < $x.i64                       -> a
$x.i64 <= $x.f64                      -> b c
$x.u64 > $x.i64                       -> a b c
$x.u64 > 9223372036854775807          -> a b
$x.u64 > -1                           -> a b c
$x.u64 >= $x.f64                      -> a b
$x.f32 = 0.1                          -> a
$x.f32 = $f                           -> a
$x.f32 = $narrow                      -> a
0.1 = $x.f32                          -> a
$narrow = 0.1                         -> a b c n
$narrow = $f                          -> a b c n
$f = $narrow                          -> a b c n
$f + 0 = $narrow                      ->
$x.f32 = $f + 0                       ->
$x.f32 > $f + 0                       -> a b
$x.f32 = 16777217                     ->
$x.f32 < 16777217                     -> a b c
$x.f32 = 0                            -> c
$x.f32 = 0.0                          -> c
$x.f32 in [0.0, 0.1]                  -> a c
$x.f32 in [1, 2, 3, 4, 0]             -> c
$x.i32 in [36.0, 20.5]                -> a
$x.i32 in $few                        -> a
$x.i32 in [1, 2, 3, 4, 5, 20]         -> b c
$x.i32 in []                          ->
$x.i32 + 0 in [20, 36]                -> a b
20 in [20, 36]                        -> a b c n
$x.s in ["Ä", ""]                     -> b c
$x.s < "z"                            -> a c
$x.s > "z"                            -> b
$x.s > $x.t                           ->
$x.s <= $x.t                          -> a b c
$x.b = true                           -> a c
$x.b > false                          -> a c
$x.b < $x.b                           ->
$x.b >= $x.b                          -> a b c
$x.role > "de"                        -> a b c
$x.role = "boss"                      ->
$x.d >= date("2024-01-01")            -> a
$x.d in [date("1970-01-01")]          -> b
$x.at > datetime("2024-01-01T00:00:00Z")  -> c
$x.at = now()                         -> a
$x.at < now()                         -> b
now() = datetime("2024-01-01T00:00:00Z")  -> a b c n
$x.s contains "bo"                    -> a
$x.s contains ""                      -> a b c
$x.s starts_with "A"                  ->
$x.s starts_with "ad"                 -> a
$x.s contains "."                     ->
"ada bo Ä" contains $x.s              -> a b c
"ada bo Ä" starts_with $x.s           -> a c
($text) contains $x.t                   -> a
$x.s contains $x.t                    -> a b
$x.s starts_with $x.t                 -> b
"bobby" contains $text                -> a b c n
lower($x.s) = "ä"                     -> b
upper($x.s) contains upper("da")      -> a
lower("A") = "a"                      -> a b c n
$x.words contains "x"                 -> a
$x.words contains $x.t                -> a b
$x.words contains $text               ->
($words) contains $x.t                  -> a
$words contains "y"                   -> a b c n
$x.wholes contains $x.i32             -> a b
$x.wholes contains 36.0               -> a
$x.wholes contains 9007199254740992.0 ->
$x.wholes contains $x.f64             ->
$x.wholes contains $nothing           ->
$x.reals contains 0.1                 -> a
$x.reals contains $f + 0              ->
$x.reals contains $x.f32              -> a c
($few) contains $x.i32                  -> a
$x.i32 is null                        -> n
$x.i32 is not null                    -> a b c
$x.words is null                      -> n
$x.v is null                          -> c n
$x.raw is not null                    -> a b
$x is null                            -> n
$nothing is null                      -> a b c n
$text is null                         ->
$x.i32 / 0 is null                    -> a b c n
$x.i64 - 1 is null                    -> c n
$x.u64 - 9223372036854775807 > 0      -> b
$x.i32 - 16 > 3                       -> a b
-$x.i64 > 0                           ->
-$x.u64 < 0                           -> b
-$x.i32 < -2                          -> a b
"""


def lower_filter(text: str) -> tuple[Predicate, ...]:
    """What a filter becomes."""
    query = compile_query(f"query q({PARAMETERS}) {{ match {{ $x: Item {text} }} return {{ $x }} }}", CATALOG)
    assert isinstance(query, CompiledRead)
    plan = query.plan
    while not isinstance(plan, Scan):
        ((_, below),) = inputs(plan)
        found = getattr(plan, "where", ())
        if found:
            return found  # type: ignore[no-any-return]
        plan = below
    return plan.where


@pytest.mark.parametrize("case", FILTERS.strip().splitlines())
def test_filters_select_by_value(case: str) -> None:
    text, _, expected = case.rpartition("->")
    (test,) = lower_filter(text)
    flags = evaluate_predicate(test, ITEM_ROWS)
    assert flags.dtype == np.bool_
    assert [key for key, flag in zip("abcn", flags, strict=True) if flag] == expected.split()


@pytest.mark.parametrize("case", FILTERS.strip().splitlines())
def test_filters_on_no_rows_select_none(case: str) -> None:
    (test,) = lower_filter(case.rpartition("->")[0])
    none = Rows(0, {name: held.slice(0, 0) for name, held in ITEM_ROWS.columns.items()}, ITEM_ROWS.parameters)
    assert evaluate_predicate(test, none).shape == (0,)


def test_a_test_that_nothing_can_pass_fetches_no_column() -> None:
    bare = Rows(2)  # has no column to fetch
    for text in ("$x.i32 = 2.7", "$x.i32 > 3000000000", "$x.i32 = $nothing", "$x.s in []"):
        (test,) = lower_filter(text)
        assert evaluate_predicate(test, Rows(2, parameters={"nothing": None})).tolist() == [False, False]
    with pytest.raises(KeyError):
        evaluate_predicate(lower_filter("$x.i32 = 2")[0], bare)


def test_a_text_search_holds_only_where_it_is_true() -> None:
    match = TextMatch("search", prop("s", STRING), Const("ada", STRING), None)
    rows = Rows(3, scores={match: pa.array([True, False, None])})
    assert evaluate_predicate(Holds(match), rows).tolist() == [True, False, False]
    assert evaluate_predicate(Compare("=", match, Const(False, BOOL)), rows).tolist() == [False, True, False]
    assert evaluate_predicate(Compare("!=", Const(True, BOOL), match), rows).tolist() == [False, True, False]


# --- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 3])
@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (Const("é", STRING), "é"),
        (Const(None, STRING.with_nullable()), None),
        (Const(5, I64), 5),
        (Const(True, BOOL), True),
        (Const("2024-01-01", DATE), 19723),
        (Const("2024-01-01T02:00:00+02:00", DATETIME), NOW),
        (Const((2**53 + 1, 2.5), list_of(Scalar.F64)), [2.0**53, 2.5]),
        (Const((), list_of(Scalar.STRING)), []),
        (Const((1.0, 2.0), vector_type(2)), [1.0, 2.0]),
        (ParamRef("small", ValueType(Scalar.U32)), 7),
        (ParamRef("day", DATE), 1),
        (ParamRef("nothing", ValueType(Scalar.F32, nullable=True)), None),
        (ParamRef("nothing", list_of(Scalar.I32)), None),
        (Instant(), NOW),
        (Calc("+", Const(2, I64), Const(3, I64), I64.with_nullable()), 5),
        (Calc("/", Const(7, I64), Const(0, I64), F64.with_nullable()), None),
        (Minus(Const(0.0, F64), F64.with_nullable()), -0.0),
        (CaseFold("lower", Const("ÀΣ", STRING), STRING), "àσ"),
        (CaseFold("upper", Const("éß", STRING), STRING), "Éẞ"),
    ],
)
def test_what_no_row_changes_is_repeated(term: Term, expected: object, length: int) -> None:
    found = evaluate_term(term, Rows(length, parameters={"small": 7, "day": 1, "nothing": None}))
    assert found.type == arrow_type(term.type)
    plain = {Scalar.DATE: pa.int32(), Scalar.DATETIME: pa.int64()}.get(term.type.scalar)
    assert repr((found.cast(plain) if plain else found).to_pylist()) == repr([expected] * length)


def test_columns_ids_and_scores_are_taken_as_they_are() -> None:
    score = Relevance(prop("s", STRING), Const("ada", STRING))
    rows = Rows(
        2, {"s": pa.array(["a", None]), "id": pa.array(["1", "2"])}, scores={score: pa.array([1.5, None])}
    )
    assert evaluate_term(prop("s", STRING), rows).to_pylist() == ["a", None]
    assert evaluate_term(Column("s", STRING), rows).to_pylist() == ["a", None]
    assert evaluate_term(EntityId("x"), rows).to_pylist() == ["1", "2"]
    assert evaluate_term(Calc("*", score, Const(2, I64), F64), rows).to_pylist() == [3.0, None]
    assert evaluate_term(CaseFold("upper", prop("s", STRING), STRING), rows).to_pylist() == ["A", None]


def test_totals_come_from_outside() -> None:
    count = Total("count", EntityId("x"), False, I64)
    total = Total("sum", prop("i", I64), False, F64)
    term = Calc("/", total, Calc("*", count, Const(2, I64), I64), F64)
    replaced: dict[Term, pa.Array] = {count: pa.array([1, 0]), total: pa.array([3.0, None])}
    assert evaluate_term(term, Rows(2), replaced).to_pylist() == [1.5, None]
    with pytest.raises(InternalError, match="count"):
        evaluate_term(count, Rows(2))


def test_a_group_key_inside_an_expression_is_replaced_too() -> None:
    key = prop("i", I64)
    assert evaluate_term(Minus(key, I64), Rows(2), {key: pa.array([1, None])}).to_pylist() == [-1, None]


# --- the rules in plain Python -----------------------------------------------------------------------

NUMBERS = [Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64]
_NEAR = [
    sign * (2**power + more)
    for power in (0, 24, 31, 32, 53, 62, 63, 64)
    for more in (-1, 0, 1)
    for sign in (1, -1)
]
_REALS = [
    0.0,
    -0.0,
    0.1,
    2.7,
    -2.7,
    5e-324,
    1e300,
    -1e300,
    1e39,
    3e38,
    2.0**53 + 2,
    2.0**63 + 2048,
    2.0**64 - 2048,
]
OPS: dict[Any, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def as_f32(number: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def edges(scalar: Scalar) -> list[Any]:
    if scalar in INTEGERS:
        low, high = integer_bounds(scalar)
        return [number for number in _NEAR if low <= number <= high]
    near = [*map(float, _NEAR), *_REALS]
    return [as_f32(number) for number in near if abs(number) < 1e38] if scalar is Scalar.F32 else near


def numbers(scalar: Scalar) -> st.SearchStrategy[Any]:
    if scalar in INTEGERS:
        return st.sampled_from(edges(scalar)) | st.integers(*integer_bounds(scalar)) | st.integers(0, 3)
    width: Literal[32, 64] = 32 if scalar is Scalar.F32 else 64
    return st.sampled_from(edges(scalar)) | st.floats(width=width, allow_nan=False, allow_infinity=False)


def values_of(scalar: Scalar) -> st.SearchStrategy[Any]:
    if scalar is Scalar.STRING:
        return st.sampled_from(["", "a", "ab", "é", "￿", "\U00010000"]) | st.text(max_size=3)
    return st.booleans() if scalar is Scalar.BOOL else numbers(scalar)


@dataclass(frozen=True)
class Side:
    """One operand: the term, what it is in every row, and whether it counts as a written constant."""

    term: Term
    plain: list[Any]
    written: bool = False


@st.composite
def sides(draw: st.DrawFn, scalar: Scalar, name: str, length: int, known: dict[str, Any]) -> Side:
    form = draw(st.sampled_from(["column", "column", "constant", "parameter", "calculated"]))
    type_ = ValueType(scalar, nullable=True)
    if form == "column" or (form == "calculated" and scalar not in (Scalar.I64, Scalar.F64)):
        plain = draw(st.lists(st.none() | values_of(scalar), min_size=length, max_size=length))
        known[name] = off_start(plain, type_)
        return Side(prop(name, type_), plain)
    one = draw(values_of(scalar))
    if form == "constant" and scalar in (Scalar.I64, Scalar.F64, Scalar.STRING, Scalar.BOOL):
        return Side(Const(one, type_), [one] * length, written=True)
    if form == "calculated":
        return Side(Calc("+", Const(one, type_), Const(0, I64), type_), [one] * length)
    given_value = draw(st.none() | st.just(one))
    known[f"${name}"] = given_value
    return Side(ParamRef(name, type_), [given_value] * length, written=True)


def rows_of(length: int, known: Mapping[str, Any]) -> Rows:
    columns = {name: held for name, held in known.items() if not name.startswith("$")}
    return Rows(length, columns, {name[1:]: held for name, held in known.items() if name.startswith("$")})


def meeting(value_: Any, side: Side, other: ValueType) -> Any:
    """A value as it is compared: a written float is rounded to 32 bits where it meets those."""
    if isinstance(value_, float) and side.written and other.scalar is Scalar.F32:
        value_ = as_f32(value_)
    if isinstance(value_, str):
        return value_.encode()
    return Fraction(value_) if math.isfinite(value_) else value_


def plainly(op: str, left: Side, right: Side) -> list[bool]:
    return [
        one is not None
        and other is not None
        and OPS[op](meeting(one, left, right.term.type), meeting(other, right, left.term.type))
        for one, other in zip(left.plain, right.plain, strict=True)
    ]


def pairs() -> st.SearchStrategy[tuple[Scalar, Scalar]]:
    same = st.sampled_from([Scalar.STRING, Scalar.BOOL]).map(lambda scalar: (scalar, scalar))
    return st.tuples(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS)) | same


@pytest.mark.fuzz
@settings(max_examples=4 * EXAMPLES)
@given(data=st.data(), scalars=pairs(), op=st.sampled_from(list(OPS)), length=st.integers(0, 5))
def test_comparisons_are_exact(
    data: st.DataObject, scalars: tuple[Scalar, Scalar], op: Any, length: int
) -> None:
    known: dict[str, Any] = {}
    left = data.draw(sides(scalars[0], "l", length, known))
    right = data.draw(sides(scalars[1], "r", length, known))
    flags = evaluate_predicate(Compare(op, left.term, right.term), rows_of(length, known))
    assert flags.tolist() == plainly(op, left, right)


@pytest.mark.parametrize("left", NUMBERS)
@pytest.mark.parametrize("right", NUMBERS)
def test_every_pair_of_numbers_at_the_ends_of_widths(left: Scalar, right: Scalar) -> None:
    both = [(one, other) for one in edges(left) for other in edges(right)]
    ones, others = ValueType(left), ValueType(right)
    columns = {
        "l": build_column([one for one, _ in both], ones),
        "r": build_column([other for _, other in both], others),
    }
    for op, holds in OPS.items():
        flags = evaluate_predicate(Compare(op, prop("l", ones), prop("r", others)), Rows(len(both), columns))
        assert flags.tolist() == [holds(one, other) for one, other in both]  # Python compares exactly


@pytest.mark.fuzz
@settings(max_examples=2 * EXAMPLES)
@given(data=st.data(), scalars=pairs(), length=st.integers(0, 4), as_list=st.booleans())
def test_membership_is_equality_with_an_item(
    data: st.DataObject, scalars: tuple[Scalar, Scalar], length: int, as_list: bool
) -> None:
    known: dict[str, Any] = {}
    left = data.draw(sides(scalars[0], "l", length, known))
    items = data.draw(st.lists(values_of(scalars[1]), max_size=7))
    known["$r"] = data.draw(st.just(tuple(items)) | st.none())
    given_list = ParamRef("r", list_of(scalars[1]))
    test = Has(given_list, left.term) if as_list else InList(left.term, given_list)
    each = [plainly("=", left, Side(given_list, [item] * length, True)) for item in known["$r"] or ()]
    expected = [any(flags[row] for flags in each) for row in range(length)]
    assert evaluate_predicate(test, rows_of(length, known)).tolist() == expected


@pytest.mark.fuzz
@settings(max_examples=2 * EXAMPLES)
@given(data=st.data(), scalars=pairs(), length=st.integers(0, 4))
def test_a_stored_list_has_an_item_by_value(
    data: st.DataObject, scalars: tuple[Scalar, Scalar], length: int
) -> None:
    known: dict[str, Any] = {}
    lists = st.lists(values_of(scalars[0]) | st.none(), max_size=3)
    stored = data.draw(st.lists(lists, min_size=length, max_size=length))
    missing = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))
    known["l"] = _with_hidden_items(stored, missing, list_of(scalars[0]))
    item = data.draw(sides(scalars[1], "r", length, known))
    expected = []
    for row, items in enumerate(stored):
        column = Side(prop("l", ValueType(scalars[0])), list(items))
        wanted = Side(item.term, [item.plain[row]] * len(items), item.written)
        expected.append(not missing[row] and any(plainly("=", column, wanted)))
    flags = evaluate_predicate(Has(prop("l", list_of(scalars[0])), item.term), rows_of(length, known))
    assert flags.tolist() == expected


def _with_hidden_items(
    stored: Sequence[Sequence[Any]], missing: Sequence[bool], type_: ValueType
) -> pa.Array:
    """Lists of which the missing ones still have items in memory, as Arrow allows."""
    items = build_column([item for each in stored for item in each], type_.item)
    bounds = np.cumsum([0, *map(len, stored)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), items, mask=pa.array(list(missing), pa.bool_()))


# --- texts -------------------------------------------------------------------------------------------

REPETITIVE = (
    st.text(alphabet="abé", max_size=6) | st.integers(0, 90).map(lambda n: "ab" * n) | st.text(max_size=4)
)


@pytest.mark.fuzz
@settings(max_examples=2 * EXAMPLES)
@given(
    rows=st.lists(st.tuples(st.none() | REPETITIVE, st.none() | REPETITIVE), max_size=6),
    fixed=REPETITIVE,
    op=st.sampled_from(["contains", "starts_with"]),
)
def test_parts_of_texts_are_exact_wherever_they_come_from(
    rows: list[tuple[str | None, str | None]], fixed: str, op: Any
) -> None:
    texts, parts = [text for text, _ in rows], [part for _, part in rows]
    scope = Rows(len(rows), {"text": off_start(texts, STRING), "part": off_start(parts, STRING)})
    text, part, one = prop("text", STRING), prop("part", STRING), Const(fixed, STRING)
    assert evaluate_predicate(TextTest(op, text, part), scope).tolist() == [_has(op, t, p) for t, p in rows]
    assert evaluate_predicate(TextTest(op, one, part), scope).tolist() == [_has(op, fixed, p) for p in parts]
    assert evaluate_predicate(TextTest(op, text, one), scope).tolist() == [_has(op, t, fixed) for t in texts]


def _has(op: str, text: str | None, part: str | None) -> bool:
    if text is None or part is None:
        return False
    return part in text if op == "contains" else text.startswith(part)


def test_parts_of_many_long_texts() -> None:
    texts = [f"{'xy' * 40}{row:05}{'z' * (row % 50)}" for row in range(30_000)]
    parts = [f"{row // 3 * 3:05}{'z' * (row % 7)}" for row in range(30_000)]
    scope = Rows(len(texts), {"text": pa.array(texts), "part": pa.array(parts)})
    flags = evaluate_predicate(TextTest("contains", prop("text", STRING), prop("part", STRING)), scope)
    expected = [part in text for text, part in zip(texts, parts, strict=True)]
    assert 0 < sum(expected) < len(expected)
    assert flags.tolist() == expected


@pytest.mark.fuzz
@given(texts=st.lists(st.text(max_size=4), max_size=5), fn=st.sampled_from(["lower", "upper"]))
def test_case_changes_letter_by_letter(texts: list[str], fn: Any) -> None:
    folded = evaluate_term(
        CaseFold(fn, prop("s", STRING), STRING), Rows(len(texts), {"s": pa.array(texts, pa.string())})
    )
    assert [len(text) for text in folded.to_pylist()] == [len(text) for text in texts]


# --- arithmetic --------------------------------------------------------------------------------------


@pytest.mark.fuzz
@settings(max_examples=4 * EXAMPLES)
@given(
    data=st.data(),
    scalars=st.tuples(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS)),
    op=st.sampled_from(["+", "-", "*", "/"]),
    length=st.integers(0, 5),
)
def test_arithmetic_is_exact_or_null(
    data: st.DataObject, scalars: tuple[Scalar, Scalar], op: Any, length: int
) -> None:
    known: dict[str, Any] = {}
    left = data.draw(sides(scalars[0], "l", length, known))
    right = data.draw(sides(scalars[1], "r", length, known))
    whole = op != "/" and set(scalars) <= INTEGERS
    found = evaluate_term(Calc(op, left.term, right.term, I64 if whole else F64), rows_of(length, known))
    assert found.type == (pa.int64() if whole else pa.float64())
    expected = [_plain_result(op, *both, whole) for both in zip(left.plain, right.plain, strict=True)]
    assert found.to_pylist() == expected


def _plain_result(op: str, left: Any, right: Any, whole: bool) -> Any:
    if left is None or right is None:
        return None
    if not whole:
        left, right = float(left), float(right)
        if op == "/" and right == 0:
            return None
    result = {"+": left.__add__, "-": left.__sub__, "*": left.__mul__}.get(op, lambda other: left / other)(
        right
    )
    fits = -(2**63) <= result < 2**63 if whole else math.isfinite(result)
    return result if fits else None


@pytest.mark.fuzz
@given(data=st.data(), scalar=st.sampled_from(NUMBERS))
def test_a_sign_is_changed_exactly_or_to_null(data: st.DataObject, scalar: Scalar) -> None:
    plain = data.draw(st.lists(st.none() | numbers(scalar), max_size=4))
    type_ = I64 if scalar in INTEGERS else F64
    found = evaluate_term(
        Minus(prop("n", ValueType(scalar)), type_),
        Rows(len(plain), {"n": off_start(plain, ValueType(scalar))}),
    )
    expected = [None if n is None or (type_ is I64 and not -(2**63) <= -n < 2**63) else -n for n in plain]
    assert repr(found.to_pylist()) == repr(expected)
