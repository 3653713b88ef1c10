"""Small graphs, and reads of them that are mostly blocks in blocks, as Hypothesis strategies.

Every variable has a name of its own; `shared_names.py` makes other texts of the same meaning.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from omnigraph.lang.schema import compile_schema
from tests.query.generate import Query

SCHEMA = """
node A { k: String @key  n: I32? }
node B { k: String @key  m: I32? }
edge Aa: A -> A { w: I32? }
edge Ab: A -> B
edge Ba: B -> A
"""
CATALOG = compile_schema(SCHEMA)
ENDS = {"aa": ("A", "A"), "ab": ("A", "B"), "ba": ("B", "A")}
NUMBER = {"A": "n", "B": "m"}
DEEPEST = 3


@st.composite
def small_graphs(draw: DrawFn) -> list[str]:
    """The lines of a load: few nodes, so that many of them are joined."""
    lines = []
    for type_name, number in NUMBER.items():
        for key in "rstuv"[: draw(st.integers(3, 5))]:
            data = {"k": key, number: draw(st.sampled_from([0, 1, None]))}
            lines.append(json.dumps({"type": type_name, "data": data}))
    for edge, (source, target) in ENDS.items():
        for at in range(draw(st.integers(4, 9))):
            ends = {"from": draw(_KEY), "to": draw(_KEY)}
            data = {"id": f"{edge}{at}"} | ({"w": draw(st.integers(0, 1))} if edge == "aa" else {})
            known = {json.loads(line)["data"]["k"] for line in lines if f'"type": "{source}"' in line}
            others = {json.loads(line)["data"]["k"] for line in lines if f'"type": "{target}"' in line}
            if ends["from"] in known and ends["to"] in others:
                lines.append(json.dumps({"edge": edge.capitalize(), **ends, "data": data}))
    return lines


_KEY = st.sampled_from("rstuv")


class _Writer:
    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw
        self._count = 0

    def pick(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(options))

    def clauses(self, scope: dict[str, str], count: int, depth: int) -> list[str]:
        """So many clauses; the scope learns what they bind."""
        return [self._clause(scope, depth) for _ in range(count)]

    def _clause(self, scope: dict[str, str], depth: int) -> str:
        kinds = ["walk", "walk", "test", "not", "not", "optional"] if depth < DEEPEST else ["walk", "test"]
        kind = self.pick(kinds)
        if kind == "walk":
            return self._walk(scope)
        if kind == "test":
            return self._test(scope)
        inner = dict(scope)
        first = self.pick([self._walk, self._walk, self._test])(inner)
        rest = self.clauses(inner, self.pick([0, 1, 1, 2]), depth + 1)
        if kind == "optional":
            scope.update(inner)
        return f"{kind} {{ {'  '.join([first, *rest])} }}"

    def _new(self, scope: dict[str, str], type_name: str) -> str:
        self._count += 1
        scope[f"$n{self._count}"] = type_name
        return f"$n{self._count}"

    def _walk(self, scope: dict[str, str]) -> str:
        near, type_name = self.pick([*scope.items()])
        edge = self.pick([edge for edge, ends in ENDS.items() if type_name in ends])
        source, target = ENDS[edge]
        outgoing = source == type_name if source != target else self.pick([True, False])
        far_type = target if outgoing else source
        known = [var for var, other in scope.items() if other == far_type and var != near]
        far = self.pick([*known, None, None]) or self._new(scope, far_type)
        hops = self.pick(["", "", "{1,2}"]) if edge == "aa" else ""
        return f"{near} {edge}{hops} {far}" if outgoing else f"{far} {edge}{hops} {near}"

    def _test(self, scope: dict[str, str]) -> str:
        var, type_name = self.pick([*scope.items()])
        choice = self.pick(["key", "key", "number", "null", "same"])
        if choice == "key":
            return f'{var}.k {self.pick(["=", "!="])} "{self._draw(_KEY)}"'
        if choice == "number":
            return f"{var}.{NUMBER[type_name]} = {self.pick([0, 1])}"
        if choice == "null":
            return f"{var}.{NUMBER[type_name]} is {self.pick(['', 'not '])}null"
        return f"{var}.k {self.pick(['=', '!='])} {self.pick([*scope])}.k"


@st.composite
def nested_queries(draw: DrawFn) -> Query:
    """A read with blocks, nested up to three deep."""
    writer, scope = _Writer(draw), dict[str, str]()
    first = f"{writer._new(scope, writer.pick(['A', 'A', 'B']))}: {scope['$n1']}"
    clauses = [first, *writer.clauses(scope, writer.pick([2, 3, 4]), 0)]
    columns = ", ".join(f"{var}.k as c{at}" for at, var in enumerate(scope))
    returned = draw(st.sampled_from([columns, columns, "count($n1) as c0", "$n1.k as c0, count($n1) as c1"]))
    body = "\n    ".join(clauses)
    return Query(f"query q() {{\n  match {{\n    {body}\n  }}\n  return {{ {returned} }}\n}}", {})
