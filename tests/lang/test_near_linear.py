"""Twice the text is about twice the work, counted in calls: machine-made queries and schemas can be long."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from omnigraph.lang.query.compile import compile_query
from omnigraph.lang.query.lint import lint
from omnigraph.lang.query.parameters import decode_parameters
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.ir import compile_with_ir, render
from omnigraph.lang.schema.migration_planner import plan_files
from omnigraph.lang.source import Source

CATALOG = compile_schema("node P { k: String @key  v: I64? }")
SIZE = 400


def _calls(work: Callable[[], object]) -> int:
    count = 0

    def tally(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(tally)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def _parameters(size: int) -> str:
    declared = ", ".join(f"$p{number}: I64" for number in range(size))
    return f"query q({declared}) {{ match {{ $a: P  $a.v = $p0 }} return {{ $a.k }} }}"


def _items(size: int) -> str:
    items = ", ".join(map(str, range(size)))
    return f"query q() {{ match {{ $a: P  $a.v in [{items}] }} return {{ $a.k }} }}"


def _queries(size: int) -> str:
    one = "query q{}($x: I64) {{ match {{ $a: P  $a.v = $x }} return {{ $a.k }} }}"
    return "\n".join(one.format(number) for number in range(size))


def _types(size: int, properties: str = "") -> str:
    nodes = [f"node T{number} {{ k: String @key {properties} }}" for number in range(size)]
    return "\n".join([*nodes, *(f"edge E{number}: T{number} -> T0" for number in range(size))])


def _plan_types(size: int) -> object:
    return plan_files(compile_schema(_types(size)), compile_schema(_types(size, "v: I32?")))


def _decode_parameters(size: int) -> object:
    declared = parse_queries(Source(_parameters(size))).queries[0].parameters
    return decode_parameters(declared, {f"p{number}": number for number in range(size)})


def _given_items(size: int) -> object:
    text = "query q($l: [I64]) { match { $a: P  $a.v in $l } return { $a.k } }"
    return decode_parameters(parse_queries(Source(text)).queries[0].parameters, {"l": list(range(size))})


WORK: dict[str, Callable[[int], object]] = {
    "parameters": lambda size: compile_query(_parameters(size), CATALOG),
    "parameters, linted": lambda size: lint(Source(_parameters(size)), CATALOG),
    "parameters, with values": _decode_parameters,
    "items of a list parameter": _given_items,
    "items of `in`": lambda size: compile_query(_items(size), CATALOG),
    "items of `in`, linted": lambda size: lint(Source(_items(size)), CATALOG),
    "queries": lambda size: compile_query(_queries(size), CATALOG, "q0"),
    "queries, linted": lambda size: lint(Source(_queries(size)), CATALOG),
    "types": lambda size: compile_schema(_types(size)),
    "types, with identities": lambda size: render(compile_with_ir(_types(size))[1], indent=2),
    "types, migrated": _plan_types,
}


@pytest.mark.parametrize("kind", WORK)
def test_twice_the_text_is_about_twice_the_work(kind: str) -> None:
    work = WORK[kind]
    # Once before: what is only done the first time does not count.
    work(2)
    once, twice = (_calls(lambda size=size: work(size)) for size in (SIZE, 2 * SIZE))  # type: ignore[misc]
    assert twice < 2.3 * once
