"""Which tests Lance answers, and that it answers them as Arrow does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.rows.json_columns import build_column
from omnigraph.engine.rows.predicate import Bindings
from omnigraph.errors import ParameterError
from omnigraph.lang.query.compile import CompiledRead, compile_query
from omnigraph.lang.query.plan import Filter, Project, Scan
from omnigraph.lang.query.terms import (
    Compare,
    EntityId,
    Has,
    Instant,
    NullCheck,
    ParamRef,
    Predicate,
    Prop,
    TextTest,
)
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.types import DATETIME, I64, STRING, Scalar, ValueType
from omnigraph.lang.values import Stored
from omnigraph.query.expressions.evaluate import evaluate_predicate
from omnigraph.query.expressions.pushdown import NO_ROWS, lance_filter, list_needed_columns

CATALOG = compile_schema("""
node Item {
  k: String @key  age: I32?  big: I64?  large: U64?  narrow: F32?  wide: F64?  text: String?  flag: Bool?
  day: Date?  at: DateTime?  role: enum(dev, lead)?  words: [String]?  wholes: [I64]?  reals: [F32]?
  v: Vector(2)?  raw: Blob?
}
""")
PROPERTIES = CATALOG.nodes["Item"].properties
VALUES: dict[str, tuple[Any, ...]] = {
    "k": ("a", "b", "c", "d", "n"),
    "age": (36, 20, 2, -7, None),
    "big": (2**53 + 1, 2**53, -(2**63), 2**63 - 1, None),
    "large": (2**64 - 1, 2**63, 0, 7, None),
    "narrow": (0.1, 16777216.0, -0.0, 0.0, None),
    "wide": (2.0**53, -0.0, 2.0**63, 0.1, None),
    "text": ("ada bo", "Ä", "", "it's", None),
    "flag": (True, False, True, False, None),
    "day": (19723, 0, -1, 19724, None),
    "at": (1_704_067_200_000, 0, 1_704_067_200_001, -1, None),
    "role": ("lead", "dev", "dev", "lead", None),
    "words": (("x", "bo"), ("Ä",), (), ("it's",), None),
    "wholes": ((36, 1), (20,), (2**53 + 1,), (), None),
    "reals": ((0.1,), (1.0, 2.0), (-0.0,), (0.0,), None),
    "v": ((1.0, 2.0), (0.0, 0.0), None, (3.0, 4.0), None),
}
PARAMETERS = "$x: F64, $none: I32?, $few: [F64], $t: String"
BOUND = Bindings({"x": 0.1, "none": None, "few": (36.0, 20.5, 0.1), "t": "bo"}, now=1_704_067_200_000)
ROWS = pa.table(
    {
        "id": pa.array(VALUES["k"]),
        **{name: build_column(values, PROPERTIES[name].type) for name, values in VALUES.items()},
    }
)

ASKED_OF_LANCE = """
$i.age = 36.0
$i.age = 2.7
$i.age != 36
$i.age < 3000000000
$i.age > 19.5
19.5 >= $i.age
$i.age = $none
$i.age in [36, 2.0, 5]
$i.age in $few
$i.age in []
$i.big = 9007199254740993
$i.big <= 9007199254740992.0
$i.big = -9223372036854775808
$i.large > 9223372036854775807
$i.large != -1
$i.narrow = 0.1
$i.narrow = $x
$i.narrow = 0
$i.narrow >= 0.0
$i.narrow < 16777217
$i.narrow in [0, 0.1]
$i.wide = $x
$i.wide < 9007199254740993
$i.wide = 0.0
$i.text = "it's"
$i.text > "z"
$i.text contains ""
$i.text contains $t
$i.text starts_with "ad"
$i.text ends_with "bo"
$i.text like "ad%"
$i.text like "%bo"
$i.text like "%t's%"
$i.text like "Ä"
$i.text like "%"
$i.text in ["", "Ä"]
$i.flag = true
$i.flag < true
$i.day >= date("2024-01-01")
$i.day in [date("1970-01-01"), date("2024-01-02")]
$i.at > datetime("2024-01-01T00:00:00Z")
$i.at = now()
$i.role = "lead"
$i.role >= "e"
$i.words contains "x"
$i.words contains $t
$i.wholes contains 36.0
$i.wholes contains 9007199254740992.0
$i.reals contains 0.1
$i.reals contains 0
$i.age is null
$i.age is not null
$i.words is null
$i.words is not null
$i.v is null
$i is not null
$i.age = 36 or $i.text = "Ä"
($i.age > 5 and $i.flag = true) or $i.words contains "x" or $i.age = 2.7
$i.age = 2.7 or $i.large = -1
not ($i.age = 36 or $i.wide < 1.0)
""".strip().splitlines()
KEPT_FOR_ARROW = """
$i.age + 0 = 36
$i.age = 35 + 1
$i.age > $i.big
(-$i.age) < 0
lower($i.text) = "ada bo"
$i.text = lower("ADA BO")
$i.text contains $i.k
"ada bo" contains $i.text
$i.words contains $i.text
$i.text contains upper($t)
1 in [1, 2]
$x > 0
$i.big / 2 is null
$none is null
search($i.text, "ada")
$i.raw is null
$i.age = 36 or lower($i.text) = "ä"
not ($i.text contains "a")
$i.text like "a_a%"
$i.text like $t
$i.text ilike "ADA%"
$i.text matches "^a"
""".strip().splitlines()


def scan_of(*filters: str) -> tuple[Predicate, ...]:
    """What is tested on the rows of a scan."""
    text = f"query q({PARAMETERS}) {{ match {{ $i: Item {' '.join(filters)} }} return {{ $i }} }}"
    query = compile_query(text, CATALOG)
    assert isinstance(query, CompiledRead)
    assert isinstance(query.plan, Project)
    below = query.plan.input
    tests = below.where if isinstance(below, Filter) else ()
    scan = below.input if isinstance(below, Filter) else below
    assert isinstance(scan, Scan)
    return (*scan.where, *tests)


class Scanned:
    """Rows of a table as what tests are evaluated on."""

    def __init__(self, rows: pa.Table) -> None:
        self.length = rows.num_rows
        self._rows = rows

    def prop(self, var: str, name: str) -> pa.Array:
        return self._rows.column(name).combine_chunks()

    def entity_id(self, var: str) -> pa.Array:
        return self.prop(var, "id")

    def parameter(self, name: str) -> Stored:
        return BOUND.parameters[name]

    def now(self) -> int:
        return BOUND.now

    def score(self, term: object) -> pa.Array:
        raise AssertionError("nothing is searched here")

    def path(self, term: object) -> pa.Array:
        raise AssertionError("there are no paths here")

    def column(self, name: str) -> pa.Array:
        raise AssertionError("there is no result yet")


def select_ids(rows: pa.Table, tests: tuple[Predicate, ...]) -> list[str]:
    """The ids of the rows that Arrow finds to pass all tests."""
    flags = np.logical_and.reduce(
        [np.ones(rows.num_rows, np.bool_), *(evaluate_predicate(t, Scanned(rows)) for t in tests)]
    )
    return rows.column("id").filter(pa.array(flags)).to_pylist()  # type: ignore[no-any-return]


@pytest.fixture(scope="module", params=["scanned", "indexed"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    place: Path = tmp_path_factory.mktemp("rows") / "t.lance"
    made = lance.write_dataset(ROWS, place, data_storage_version="2.2", max_rows_per_file=2)
    if request.param == "indexed":
        for name in ("age", "big", "narrow", "wide", "text", "day", "at", "role"):
            made.create_scalar_index(name, "BTREE")
    return lance.dataset(place)


@pytest.mark.parametrize("text", ASKED_OF_LANCE)
def test_lance_answers_as_arrow_does(dataset: lance.LanceDataset, text: str) -> None:
    tests = scan_of(text)
    sql, rest = lance_filter("i", tests, BOUND)
    assert rest == ()
    assert dataset.to_table(filter=sql).column("id").to_pylist() == select_ids(ROWS, tests)


@pytest.mark.parametrize("text", KEPT_FOR_ARROW)
def test_what_lance_would_not_mean_the_same_by_stays(text: str) -> None:
    tests = scan_of(text)
    assert lance_filter("i", tests, BOUND) == (None, tests)


SEARCHED = tuple(
    text for text in (*ASKED_OF_LANCE, *KEPT_FOR_ARROW) if "search" not in text and ".raw" not in text
)


@pytest.mark.fuzz
@given(filters=st.lists(st.sampled_from(SEARCHED), max_size=4))
def test_a_conjunction_may_be_answered_in_two_parts(dataset: lance.LanceDataset, filters: list[str]) -> None:
    tests = scan_of(*filters)
    sql, rest = lance_filter("i", tests, BOUND)
    assert select_ids(dataset.to_table(filter=sql), rest) == select_ids(ROWS, tests)


def test_a_test_that_cannot_pass_makes_the_whole_filter_false() -> None:
    assert lance_filter("i", scan_of("$i.age = 2.7", "$i.age is null"), BOUND) == (NO_ROWS, ())
    assert lance_filter("i", (), BOUND) == (None, ())


def test_alternatives_do_not_leak_into_the_rest_of_the_filter(dataset: lance.LanceDataset) -> None:
    tests = scan_of("$i.reals contains 0", '$i.k = "d"')  # the two zeros are asked for one by one
    sql, _ = lance_filter("i", tests, BOUND)
    assert sql is not None
    assert " OR " in sql
    assert dataset.to_table(filter=sql).column("id").to_pylist() == ["d"]


def test_only_columns_of_the_scanned_variable_are_asked_for() -> None:
    mine, other = Prop("i", "age", I64), Prop("j", "age", I64)
    across: list[Predicate] = [
        Compare("=", mine, other),
        Compare("=", other, ParamRef("none", I64)),
        NullCheck(EntityId("j"), negated=True),
        TextTest("contains", Prop("j", "text", STRING), ParamRef("t", STRING)),
        Has(Prop("j", "words", ValueType(Scalar.STRING, is_list=True)), ParamRef("t", STRING)),
        Compare("=", Instant(), ParamRef("t", DATETIME)),
    ]
    assert lance_filter("i", across, BOUND) == (None, tuple(across))


def test_a_missing_parameter_is_an_error() -> None:
    with pytest.raises(ParameterError, match="parameter 'x' not provided"):
        lance_filter("i", scan_of("$i.wide = $x"), Bindings())


def test_columns_needed_are_those_that_values_are_taken_from() -> None:
    tests = scan_of(
        "$i.age + $i.big > 3", "$i.age in [1]", "$i is not null", 'search($i.text, "ada")', "lower($i.k) = $t"
    )
    assert list_needed_columns(tests) == ("age", "big", "id", "k")
    assert list_needed_columns(()) == ()
