"""Rules about single values, as loads and mutations tell them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.engine.graph.table_types import table_type_of
from omnigraph.engine.rows.value_checks import find_value_faults, require_values
from omnigraph.engine.write.pending_rows import build_nodes
from omnigraph.errors import ConstraintViolation
from tests.engine.write.support import accept_schema, lines, list_problems, node, read

RULES = """
node R {
  i: I32?  f: F64?  u: U64?  l: [I32]?  s: String?  e: enum(a, b)?  n: [String]?
  @range(i, 0..150)  @range(f, -1.5..)  @range(u, ..10)  @range(l, 0..1)
  @check(s, "^[a-z]+$")  @check(e, "a")  @check(n, "x")
}
edge E: R -> R { e: enum(a, b)? }
"""
TARGET = table_type_of(accept_schema(RULES), "node:R")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("i", 200, "@range violation on R.i: value 200 > max 150"),
        ("i", -1, "@range violation on R.i: value -1 < min 0"),
        ("f", -2.0, "@range violation on R.f: value -2 < min -1.5"),
        ("f", -1.75, "@range violation on R.f: value -1.75 < min -1.5"),
        ("u", 2**64 - 1, "@range violation on R.u: value 18446744073709551615 > max 10"),
        ("s", "Eve", "@check violation on R.s: value 'Eve' does not match pattern '^[a-z]+$'"),
        ("s", "eve\n", "@check violation on R.s: value 'eve\\n' does not match pattern '^[a-z]+$'"),
        ("s", "", "@check violation on R.s: value '' does not match pattern '^[a-z]+$'"),
        ("e", "b", "@check violation on R.e: value 'b' does not match pattern 'a'"),
    ],
)
def test_a_value_that_breaks_a_rule_is_reported(name: str, value: float | str, reason: str) -> None:
    assert list_problems(read(lines(node("R"), node("R", **{name: value})), RULES)) == [(2, reason)]
    with pytest.raises(ConstraintViolation) as caught:
        require_values(build_nodes(TARGET, [{}, {name: value}], pa.array(["r0", "r1"])), TARGET)
    assert (caught.value.message, caught.value.entity_id) == (reason, "r1")


@pytest.mark.parametrize(
    "data",
    [{"i": 0}, {"i": 150}, {"f": -1.5}, {"u": 0}, {"l": [7]}, {"s": "x"}, {"e": "a"}, {"n": ["y"]}, {}],
)
def test_bounds_are_inclusive_null_passes_and_lists_are_not_looked_at(data: dict[str, object]) -> None:
    assert list_problems(read(lines(node("R", **data)), RULES)) == []


def test_enums_of_edges_are_checked_too() -> None:
    rows = read(lines({"edge": "E", "from": "a", "to": "b", "data": {"e": "c"}}), RULES)
    assert list_problems(rows) == [(1, "invalid enum value 'c' for E.e (expected: a, b)")]


def test_not_a_number_fails_every_range() -> None:
    columns = {name: pa.nulls(1, TARGET.schema.field(name).type) for name in TARGET.owner.properties}
    columns["f"] = pa.array([float("nan")])
    assert [fault.reason for fault in find_value_faults(columns, TARGET)] == [
        "@range violation on R.f: value is NaN"
    ]


@pytest.mark.parametrize("pattern", ["a(?=b)", "(a)\\1", "("])
def test_a_pattern_that_is_no_pattern_is_reported_when_rows_meet_it(pattern: str) -> None:
    written = pattern.replace("\\", "\\\\")
    schema = f'node R {{ s: String?  @check(s, "{written}") }}'
    assert list_problems(read(lines(node("R")), schema)) == []
    with pytest.raises(ConstraintViolation) as caught:
        read(lines(node("R", s="x")), schema)
    assert caught.value.message.startswith(f"@check on R.s has invalid regex '{pattern}': ")


def test_a_pattern_matches_anywhere() -> None:
    schema = 'node R { s: String  @check(s, "b.d") }'
    rows = read(lines(node("R", s="abcde"), node("R", s="b\nd"), node("R", s="bd")), schema)
    assert [line for line, _ in list_problems(rows)] == [2, 3]
