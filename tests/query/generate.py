"""Graphs of one rich schema, and reads of it that nearly always type-check, as Hypothesis strategies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from omnigraph.lang.query.expressions import DATE_PARTS, INTERVALS
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType
from tests.query.pools import EDITABLE_WORDS, LIKE, POOLS, REGULAR, VECTORS, constant, parameter_value, quote

SCHEMA = """
node Thing {
  k: String @key  s: String?  t: String? @index  b: Bool?  kind: enum(red, green, blue)?
  i: I32? @index  j: I64?  u: U32?  w: U64?  f: F32?  d: F64?  x: F64?
  day: Date?  at: DateTime?  tags: [String]?  nums: [I64]?  reals: [F32]?  v: Vector(2)? @index
  va: Vector(2)? @metric(cosine)  vd: Vector(2)? @metric(dot)  tp: String? @text(plain)
}
node Place { name: String  i: I32?  w: U64?  d: F64? }
node Item { code: I64 @key  f: F32?  on: Bool  at: DateTime? @index }
edge Knows: Thing -> Thing { i: I32?  s: String?  f: F32?  at: DateTime? }
edge Likes: Thing -> Thing
edge Visits: Thing -> Place { j: I64?  b: Bool? }
edge Near: Place -> Place { d: F64? }
edge Holds: Item -> Thing { w: U64?  tags: [String]? }
"""
CATALOG = compile_schema(SCHEMA)
TEXTS = ("t", "t", "tp")
RELATIONS = ("!=", "<=", ">=", "<", ">", "=", "!=", "<=", ">=")

T = TypeVar("T")


@dataclass(frozen=True)
class Query:
    """A text, its parameters as JSON, and how its rows can be compared."""

    text: str
    params: dict[str, Any]
    approximate: frozenset[int] = frozenset()
    """Columns whose floats may differ in their last digits."""
    scored: frozenset[int] = frozenset()
    """Columns of which only null and not null can be compared."""
    loose: bool = False
    """The query has an order, but not one that settles all ties."""


# --- graphs --------------------------------------------------------------------------------------


@st.composite
def graphs(draw: DrawFn) -> list[str]:
    """The lines of a load."""
    lines: list[str] = []
    ids: dict[str, list[str]] = {}
    for name, node in CATALOG.nodes.items():
        count = draw(st.sampled_from([3, 4, 5, 6, 7, 8, 9, 12, 2, 1, 0]))
        ids[name] = [str(at) if name == "Item" else f"{name[0].lower()}{at}" for at in range(count)]
        for at, id_ in enumerate(ids[name]):
            data = draw(_record(name, node.properties))
            identity = {"k": id_} if name == "Thing" else {"code": at} if name == "Item" else {"id": id_}
            lines.append(json.dumps({"type": name, "data": data | identity}, ensure_ascii=False))
    for name, edge in CATALOG.edges.items():
        sources, targets = ids[edge.source], ids[edge.target]
        if not sources or not targets:
            continue
        for at in range(draw(st.sampled_from([6, 4, 8, 12, 2, 0]))):
            ends = {"from": draw(st.sampled_from(sources)), "to": draw(st.sampled_from(targets))}
            data = draw(_record(name, edge.properties)) | {"id": f"{name[0].lower()}{at}"}
            lines.append(json.dumps({"edge": name, **ends, "data": data}, ensure_ascii=False))
    return lines


def _record(owner: str, properties: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            name: st.sampled_from(stored_values(name, prop.type))
            for name, prop in properties.items()
            if (owner, name) not in (("Thing", "k"), ("Item", "code"))
        }
    )


def stored_values(name: str, type_: ValueType) -> list[Any]:
    """What a property may hold, as a load writes it."""
    if name in ("x", "t", "tp"):
        pool = POOLS[name[0]]
    elif type_.scalar is Scalar.VECTOR:
        pool = [list(vector) for vector in VECTORS]
    elif type_.enum_values:
        pool = list(type_.enum_values)
    else:
        pool = POOLS[type_.scalar]
    if type_.is_list:
        pool = [[], pool[:1], pool[:3], pool[-2:], [pool[0], pool[0]]]
    return [*pool, None, None] if type_.nullable else list(pool)


# --- queries -------------------------------------------------------------------------------------


@dataclass
class Scope:
    """The variables a clause may use."""

    nodes: dict[str, str] = field(default_factory=dict)
    edges: dict[str, str] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(dict(self.nodes), dict(self.edges), list(self.paths))

    def properties(self) -> list[tuple[str, ValueType, str]]:
        """`$x.p`, its type and its name, of every variable."""
        types = [(var, CATALOG.nodes[name].properties) for var, name in self.nodes.items()]
        types += [(var, CATALOG.edges[name].properties) for var, name in self.edges.items()]
        return [(f"${var}.{name}", prop.type, name) for var, props in types for name, prop in props.items()]


class Author:
    """Writes one query; each choice is one of Hypothesis's."""

    def __init__(self, draw: DrawFn) -> None:
        self._draw = draw
        self.params: dict[str, tuple[str, Any]] = {}
        self._names = 0
        self._bindings = 0

    # --- choices ---------------------------------------------------------------------------------

    def pick(self, options: Sequence[T]) -> T:
        return self._draw(st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def one_in(self, times: int) -> bool:
        return self.number(1, times) == times

    def fresh(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def parameter(self, type_text: str, value: Any) -> str:
        name = self.fresh("q")
        self.params[name] = (type_text, value)
        return f"${name}"

    # --- clauses ---------------------------------------------------------------------------------

    def match(self, scope: Scope) -> list[str]:
        clauses = [self.binding(scope)] if not self.one_in(12) else [self.free_traversal(scope)]
        return clauses + [self.clause(scope, 0) for _ in range(self.pick([1, 2, 2, 3, 0, 4]))]

    def clause(self, scope: Scope, depth: int) -> str:
        kinds = ["walk"] * 6 + ["filter"] * 4 + ["binding"] + (["not", "optional"] * 2 if depth < 2 else [])
        kind = self.pick(kinds)
        if kind == "walk":
            return self.traversal(scope)
        if kind == "binding" and self._bindings < 3:
            return self.binding(scope)
        if kind in ("not", "optional"):
            return self.block(kind, scope, depth)
        return self.filter(scope)

    def block(self, kind: str, scope: Scope, depth: int) -> str:
        inner = scope.inner()
        first = self.traversal(inner) if self.one_in(2) else self.filter(inner)
        rest = [self.clause(inner, depth + 1) for _ in range(self.number(0, 2))]
        if kind == "optional":
            scope.nodes.update(inner.nodes)
            scope.edges.update(inner.edges)
            scope.paths[:] = inner.paths
        return f"{kind} {{ {'  '.join([first, *rest])} }}"

    def binding(self, scope: Scope) -> str:
        if scope.nodes and self.one_in(3):
            var, type_name = self.pick(list(scope.nodes.items()))
        else:
            var, type_name = self.fresh("n"), self.pick(["Thing", "Thing", "Thing", "Place", "Item"])
            self._bindings += 1
        scope.nodes[var] = type_name
        matches = [self.property_match(type_name) for _ in range(self.pick([0] * 10 + [1, 1, 2]))]
        return f"${var}: {type_name}" + (f" {{ {', '.join(matches)} }}" if matches else "")

    def property_match(self, type_name: str) -> str:
        declared = CATALOG.nodes[type_name].properties.items()
        name, prop = self.pick([each for each in declared if each[1].type.scalar is not Scalar.VECTOR])
        type_ = prop.type
        if type_.enum_values:
            return f'{name}: "{self.pick(type_.enum_values)}"'
        return f"{name}: {self.constant(type_)}"

    def free_traversal(self, scope: Scope) -> str:
        """A group of variables without a binding: it starts at the left of the edge."""
        edge = self.pick(list(CATALOG.edges.values()))
        left, right = self.fresh("n"), self.fresh("n")
        scope.nodes.update({left: edge.source, right: edge.target})
        return f"${left} {_edge_name(edge.name)} ${right}"

    def traversal(self, scope: Scope) -> str:
        known = set(scope.nodes)
        near, near_type = self.pick(list(scope.nodes.items()))
        touching = CATALOG.incident_edges(near_type)
        edge = self.pick(touching)
        same = edge.source == edge.target
        far_type = edge.target if edge.source == near_type else edge.source
        far = self._far_end(scope, near, far_type)
        word = _edge_name(edge.name)
        if same and self.one_in(4):
            word = f"<{word}>"
        left, right = (near, far) if self.one_in(2) else (far, near)
        if known.isdisjoint({far}) and self.one_in(6):
            path = self.fresh("p")
            scope.paths.append(path)
            return f"${path} = shortest ${left} {word}{{1,{self.number(1, 5)}}} ${right}"
        return f"${left} {self._hops(scope, edge.name, word)} ${right}"

    def _far_end(self, scope: Scope, near: str, far_type: str) -> str:
        known = [var for var, type_name in scope.nodes.items() if type_name == far_type]
        choice = self.number(1, 10)
        if choice == 1:
            return "_"
        if known and choice <= 3:
            return self.pick(known)
        far = self.fresh("n")
        scope.nodes[far] = far_type
        return far

    def _hops(self, scope: Scope, edge_type: str, word: str) -> str:
        choice = self.number(1, 10)
        if choice <= 3:
            var = self.fresh("e")
            scope.edges[var] = edge_type
            return f"${var}:{word}"
        if choice <= 6:
            low = self.pick([1, 1, 1, 2, 2, 3])
            return f"{word}{{{low},{low + self.number(0, 3)}}}"
        return word

    # --- filters ---------------------------------------------------------------------------------

    def filter(self, scope: Scope) -> str:
        return self.condition(scope, 0) if self.one_in(4) else self.test(scope)

    def condition(self, scope: Scope, depth: int) -> str:
        """Tests joined by `and` and `or`, some of them negated."""
        choice = self.number(1, 6) if depth < 3 else 1
        if choice <= 2 and depth:
            return self.test(scope)
        if choice == 3:
            return f"not ({self.condition(scope, depth + 1)})"
        arms = [self.condition(scope, depth + 1) for _ in range(self.number(2, 3))]
        joined = f" {self.pick(['and', 'or', 'or'])} ".join(arms)
        return f"({joined})" if depth or self.one_in(2) else joined

    def test(self, scope: Scope) -> str:
        kind = self.pick(_FILTERS)
        written: str | None = getattr(self, f"_{kind}_filter")(scope)
        return written or self._compare_filter(scope) or self._null_filter(scope)

    def _of(self, scope: Scope, wanted: Any) -> tuple[str, ValueType, str] | None:
        found = [each for each in scope.properties() if wanted(each[1])]
        return self.pick(found) if found else None

    def _compare_filter(self, scope: Scope) -> str | None:
        chosen = self._of(scope, lambda type_: not type_.is_list and type_.scalar is not Scalar.VECTOR)
        if chosen is None:
            return None
        sides = [chosen[0], self.constant(chosen[1])]
        if self.one_in(5):
            # A clause that begins with a minus would continue the one before it.
            sides = [f"({sides[1]})" if sides[1].startswith("-") else sides[1], sides[0]]
        return f"{sides[0]} {self.pick(RELATIONS)} {sides[1]}"

    def _pair_filter(self, scope: Scope) -> str | None:
        one = self._of(scope, lambda type_: not type_.is_list and type_.scalar is not Scalar.VECTOR)
        if one is None:
            return None
        other = self._of(scope, lambda type_: not type_.is_list and _comparable(one[1], type_))
        assert other is not None
        return f"{one[0]} {self.pick(RELATIONS)} {other[0]}"

    def _number_filter(self, scope: Scope) -> str | None:
        one = self.calculation(scope)
        if one is None:
            return None
        other = self.calculation(scope) if self.one_in(2) else self.constant(ValueType(self.pick(_NUMERIC)))
        return f"{one} {self.pick(RELATIONS)} {other}"

    def _path_filter(self, scope: Scope) -> str | None:
        if not scope.paths:
            return None
        path = self.pick(scope.paths)
        if self.one_in(3):
            return (
                f'{self.pick(["nodes", "edges"])}(${path}) contains "{self.pick(["t0", "t1", "k3", "l0"])}"'
            )
        return f"length(${path}) {self.pick(RELATIONS)} {self.number(0, 3)}"

    def _text_filter(self, scope: Scope) -> str | None:
        chosen = self._of(scope, lambda type_: type_.is_text)
        if chosen is None:
            return None
        text = chosen[0] if self.one_in(2) else f"{self.pick(['lower', 'upper'])}({chosen[0]})"
        other = self._of(scope, lambda type_: type_.is_text) if self.one_in(4) else None
        part = other[0] if other else self.constant(ValueType(Scalar.STRING))
        # In parentheses, because `$q contains $n` would be a traversal.
        sides = [text, part] if not self.one_in(4) else [f"({part})", text]
        return f"{sides[0]} {self.pick(['contains', 'starts_with', 'ends_with', '=', '<'])} {sides[1]}"

    def _pattern_filter(self, scope: Scope) -> str | None:
        chosen = self._of(scope, lambda type_: type_.is_text)
        if chosen is None:
            return None
        text = chosen[0] if not self.one_in(4) else f"{self.pick(['lower', 'upper'])}({chosen[0]})"
        op = self.pick(["like", "ilike", "matches"])
        pattern = self.pick(REGULAR if op == "matches" else LIKE)
        if self.one_in(3):
            return f"{text} {op} {self.parameter('String?', None if self.one_in(8) else pattern)}"
        return f"{text} {op} {quote(pattern)}"

    def _list_filter(self, scope: Scope) -> str | None:
        chosen = self._of(scope, lambda type_: type_.is_list)
        if chosen is None:
            return None
        item = self._of(scope, lambda type_: not type_.is_list and _comparable(chosen[1], type_))
        needle = item[0] if item and self.one_in(2) else self.constant(chosen[1].item)
        return f"{chosen[0]} contains {needle}"

    def _null_filter(self, scope: Scope) -> str:
        choices = [written for written, _, _ in scope.properties()] + [f"${var}" for var in scope.nodes]
        number = self.calculation(scope) if self.one_in(3) else None
        argument = f"({number})" if number else self.pick(choices)
        return f"{argument} is {'not ' if self.one_in(2) else ''}null"

    def _in_filter(self, scope: Scope) -> str | None:
        chosen = self._of(scope, lambda type_: not type_.is_list and type_.scalar is not Scalar.VECTOR)
        if chosen is None:
            return None
        written, type_, _ = chosen
        number = self.calculation(scope) if self.one_in(4) else None
        left, scalar = (number, Scalar.I64) if number else (written, type_.scalar)
        if scalar in INTEGERS | FLOATS:
            scalar = self.pick(_NUMERIC)
        count = self.number(0, 3)
        if self.one_in(3):
            values = [parameter_value(scalar, self.pick) for _ in range(count)]
            return f"{left} in {self.parameter(f'[{scalar}]?', None if self.one_in(8) else values)}"
        if scalar in INTEGERS | FLOATS:
            scalar = self.pick([Scalar.I64, Scalar.F64])
        return f"{left} in [{', '.join(constant(scalar, self.pick) for _ in range(count))}]"

    def _chosen_filter(self, scope: Scope) -> str | None:
        chosen = self.choice(scope)
        if chosen is None:
            return None
        written, type_ = chosen
        if self.one_in(4):
            return f"{written} is {'not ' if self.one_in(2) else ''}null"
        return f"{written} {self.pick(RELATIONS)} {self._settled(type_)}"

    def _search_filter(self, scope: Scope) -> str | None:
        call = self.search(scope)
        return call and call + self.pick(["", "", " = true", " = false", " != true"])

    def search(self, scope: Scope) -> str | None:
        things = [var for var, type_name in scope.nodes.items() if type_name == "Thing"]
        if not things:
            return None
        words = " ".join(self.pick(EDITABLE_WORDS) for _ in range(self.number(1, 2)))
        return f'{self.pick(["search", "match_text"])}(${self.pick(things)}.{self.pick(TEXTS)}, "{words}")'

    # --- values ----------------------------------------------------------------------------------

    def constant(self, type_: ValueType) -> str:
        """A literal or parameter that compares with values of the type."""
        scalar = self.pick(_NUMERIC) if type_.scalar in INTEGERS | FLOATS else type_.scalar
        if scalar is Scalar.DATETIME and self.one_in(6):
            return "now()"
        if self.one_in(3):
            value = None if self.one_in(10) else parameter_value(scalar, self.pick)
            return self.parameter(f"{scalar}?", value)
        if scalar in INTEGERS | FLOATS:
            scalar = Scalar.F64 if scalar in FLOATS else Scalar.I64
        return constant(scalar, self.pick)

    def _settled(self, type_: ValueType) -> str:
        """A constant whose value the oracle knows: its own `now()` is not that of the engine."""
        return constant(type_.scalar, self.pick) if type_.scalar is Scalar.DATETIME else self.constant(type_)

    def choice(self, scope: Scope) -> tuple[str, ValueType] | None:
        """A value chosen between others, or made of a date."""
        kind = self.pick(["coalesce", "case", "part", "shift", "elapsed"])
        if kind in ("coalesce", "case"):
            return self._choice_of_values(scope, kind)
        moment = self._of(scope, lambda type_: type_.scalar in (Scalar.DATE, Scalar.DATETIME))
        if moment is None:
            return None
        written, type_, _ = moment
        of_date = type_.scalar is Scalar.DATE
        if kind == "part":
            part = self.pick(DATE_PARTS[:-3] if of_date else DATE_PARTS)
            return f"{part}({written})", ValueType(Scalar.I64)
        if kind == "elapsed":
            other = self._settled(type_)
            return f"({written} - {other})", ValueType(Scalar.I64)
        whole = self._of(scope, lambda found: found.scalar in INTEGERS and not found.is_list)
        amount = whole[0] if whole and self.one_in(3) else str(self.pick([0, 1, -1, 7, 13, -400, 2**40]))
        unit = self.pick(INTERVALS[:4] if of_date else INTERVALS)
        moved = f"({written} {self.pick('+-')} {unit}({amount}))"
        if self.one_in(4):
            return f"{'datetime' if of_date else 'date'}({moved})", _other_kind(type_)
        return moved, type_

    def _choice_of_values(self, scope: Scope, kind: str) -> tuple[str, ValueType] | None:
        one = self._of(scope, lambda type_: not type_.is_list and type_.scalar is not Scalar.VECTOR)
        if one is None:
            return None
        other = self._of(scope, lambda type_: not type_.is_list and _comparable(one[1], type_))
        values = [one[0], other[0] if other and self.one_in(2) else self._settled(one[1])]
        if kind == "coalesce":
            return f"coalesce({', '.join(values)})", one[1]
        test = self.test(scope) if self.one_in(2) else f"({self.condition(scope, 1)})"
        last = f" else {values[1]}" if not self.one_in(4) else ""
        return f"(case when {test} then {values[0]}{last} end)", one[1]

    def calculation(self, scope: Scope, depth: int = 0) -> str | None:
        """Arithmetic on a number of the scope."""
        chosen = self._of(scope, lambda type_: type_.is_numeric)
        if chosen is None:
            return None
        if depth == 2 or (depth and self.one_in(2)):
            return chosen[0] if not self.one_in(4) else self.constant(ValueType(self.pick(_NUMERIC)))
        left, right = self.calculation(scope, depth + 1), self.calculation(scope, depth + 1)
        if self.one_in(6):
            return f"(-{left})"
        return f"({left} {self.pick(['+', '-', '*', '/'])} {right})"


@dataclass
class Returned:
    """The columns of a query on their way into its text."""

    columns: list[str] = field(default_factory=list)
    approximate: set[int] = field(default_factory=set)
    scored: set[int] = field(default_factory=set)
    sortable: list[str] = field(default_factory=list)
    unsettled: bool = False
    """Whether a column that settles ties may differ in its last digits."""

    def add(
        self, written: str, *, sortable: bool = True, approximate: bool = False, scored: bool = False
    ) -> None:
        at = len(self.columns)
        self.columns.append(f"{written} as c{at}")
        if sortable and not scored:
            self.sortable.append(f"c{at}")
        self.unsettled = self.unsettled or (approximate and not sortable)
        self.approximate |= {at} if approximate else set()
        self.scored |= {at} if scored else set()


def _value(author: Author, scope: Scope, returned: Returned) -> None:
    """One returned value that every row has by itself."""
    choice = author.number(1, 12)
    properties = scope.properties()
    number = author.calculation(scope) if choice == 1 else None
    chosen = author.choice(scope) if choice in (7, 8) else None
    things = [var for var, type_name in scope.nodes.items() if type_name == "Thing"]
    call = author.search(scope) if choice == 2 else None
    if number or chosen:
        returned.add(number or chosen[0])  # type: ignore[index]  # one of the two
    elif call:
        returned.add(call)
    elif choice == 3 and things:
        vector = f"${author.pick(things)}.{author.pick(['v', 'va', 'vd'])}"
        distance = f"nearest({vector}, [{', '.join(map(str, author.pick(VECTORS)))}])"
        # By itself it would be a ranking as an order term; inside an expression it is a value.
        is_value = author.one_in(2)
        returned.add(f"{distance} * 1" if is_value else distance, sortable=is_value, approximate=True)
    elif choice == 4 and things:
        returned.add(
            f'bm25(${author.pick(things)}.{author.pick(TEXTS)}, "{author.pick(EDITABLE_WORDS)}")', scored=True
        )
    elif choice in (5, 9) and scope.paths:
        fn = author.pick(["length", "nodes", "edges"])
        returned.add(f"{fn}(${author.pick(scope.paths)})", sortable=fn == "length")
    elif choice == 5:
        returned.add(f"${author.pick(list(scope.nodes))}")
    elif choice == 6:
        returned.add(author.pick(["null", "-3", '"é"', "true", author.constant(ValueType(Scalar.U32))]))
    else:
        _property(author, properties, returned)


def _property(author: Author, properties: list[tuple[str, ValueType, str]], returned: Returned) -> None:
    written, type_, _ = author.pick(properties)
    if type_.is_text and author.one_in(4):
        written = f"{author.pick(['lower', 'upper'])}({written})"
    returned.add(written, sortable=not type_.is_list and type_.scalar is not Scalar.VECTOR)


def _key(author: Author, scope: Scope, returned: Returned) -> None:
    """One column to group by."""
    number = author.calculation(scope) if author.one_in(5) else None
    if number and "$n" in number:
        returned.add(number)
    elif author.one_in(4):
        returned.add(f"${author.pick(list(scope.nodes))}")
    else:
        _property(author, scope.properties(), returned)


def _total(author: Author, scope: Scope, returned: Returned) -> None:
    """One aggregate, perhaps in arithmetic."""
    fn = author.pick(["count", "count", "distinct", "sum", "avg", "min", "max", "collect"])
    written = _aggregate(author, scope, fn)
    if fn in ("count", "distinct", "sum") and author.one_in(3):
        other = _aggregate(author, scope, "count") if author.one_in(2) else author.pick(["2", "-1", "0.5"])
        returned.add(f"{written} {author.pick(['+', '-', '*', '/'])} {other}", approximate=True)
    else:
        returned.add(written, approximate=fn == "avg", sortable=fn != "collect")


def _aggregate(author: Author, scope: Scope, fn: str) -> str:
    scalars = [
        each for each in scope.properties() if not each[1].is_list and each[1].scalar is not Scalar.VECTOR
    ]
    node = f"${author.pick(list(scope.nodes))}"
    if fn == "count":
        return f"count({author.pick([node, node, *(written for written, _, _ in scope.properties())])})"
    if fn == "distinct":
        return f"count(distinct {author.pick([node, *(written for written, _, _ in scalars)])})"
    if fn == "collect":
        collected = author.pick([node, *(written for written, _, _ in scalars)])
        return f"collect({author.pick(['', 'distinct '])}{collected})"
    if fn in ("sum", "avg"):
        summable = [written for written, type_, _ in scalars if type_.is_numeric]
        return f"{fn}({author.pick(summable)})" if summable else f"count({node})"
    if author.one_in(4) and (chosen := author.choice(scope)) and chosen[1].scalar is not Scalar.BOOL:
        return f"{fn}({chosen[0]})"
    ordered = [written for written, type_, _ in scalars if type_.scalar is not Scalar.BOOL]
    return f"{fn}({author.pick([node, *ordered])})"


@st.composite
def queries(draw: DrawFn) -> Query:
    """A read of a generated graph."""
    author, scope = Author(draw), Scope()
    if author.one_in(8):
        return _write_ranking(author, scope)
    clauses = author.match(scope)
    returned = Returned()
    grouped = author.one_in(3)
    distinct = author.one_in(5)
    for _ in range(author.number(0, 2) if grouped else author.number(1, 4)):
        (_key if grouped else _value)(author, scope, returned)
    for _ in range(author.number(1, 3) if grouped else 0):
        _total(author, scope, returned)
    having = _having(author, scope, returned) if grouped and author.one_in(3) else ""
    order, loose = _order(author, scope, returned, grouped or distinct)
    cut = _write_limits(author) if order and not loose else ""
    head = "return distinct" if distinct else "return"
    tail = f"{having} {order} {cut}".strip()
    return _query(author, clauses, head, returned, tail, loose=loose)


def _having(author: Author, scope: Scope, returned: Returned) -> str:
    """A test of groups: of a count that need not be returned, and sometimes of a column."""
    count = _aggregate(author, scope, "count")
    tests = [f"{count} {author.pick(RELATIONS)} {author.number(0, 3)}"]
    if author.one_in(2):
        exact = [name for name in returned.sortable if int(name[1:]) not in returned.approximate]
        tests += [f"{author.pick(exact)} is {author.pick(['', 'not '])}null"] if exact else []
    return f"having {{ {author.pick([' or ', '  ']).join(tests)} }}"


def _order(author: Author, scope: Scope, returned: Returned, by_columns: bool) -> tuple[str, bool]:
    """An order clause or nothing, and whether it leaves ties open."""
    terms = list(returned.sortable)
    if not by_columns:
        scalars = [each for each in scope.properties() if not each[1].is_list]
        terms += [written for written, type_, _ in scalars if type_.scalar is not Scalar.VECTOR]
    if not terms or author.one_in(3):
        return "", False
    chosen = [author.pick(terms) + author.pick(["", " asc", " desc"]) for _ in range(author.number(1, 2))]
    # Scores are not comparable.
    loose = bool(by_columns and (returned.unsettled or returned.scored))
    return f"order {{ {', '.join(chosen)} }}", loose


def _write_limits(author: Author) -> str:
    limit = author.pick(
        ["", "", "", "limit 3", "limit 5", "limit 8", "limit $", "limit $", "limit 1", "limit 0"]
    )
    offset = author.pick(["", "", "", "", "offset 1", "offset 0", "offset $"])
    words = [limit, offset]
    for at, word in enumerate(words):
        if word.endswith("$"):
            name = author.parameter(
                author.pick(["I32", "I64", "U32", "U64"]), author.pick([2, 4, 3, 1, 0, 9])
            )
            words[at] = word[:-1] + name
    return " ".join(word for word in words if word)


def _write_ranking(author: Author, scope: Scope) -> Query:
    """A read whose first variable is ranked."""
    scope.nodes["n0"] = "Thing"
    clauses = ["$n0: Thing"] + [author.clause(scope, 0) for _ in range(author.number(0, 3))]
    returned = Returned()
    returned.add("$n0")
    for _ in range(author.number(0, 2)):
        _value(author, scope, returned)
    near = [f"nearest($n0.v, [{', '.join(map(str, author.pick(VECTORS)))}])" for _ in range(2)]
    cut = f"limit {author.pick([3, 2, 4, 6, 1, 0])}" + author.pick(["", " offset 1", " offset 3"])
    kind = author.number(1, 5)
    if kind == 1:  # no limit: the order of relevance is not compared
        call = f'bm25($n0.t, "{author.pick(EDITABLE_WORDS)}")'
        return _query(author, clauses, "return", returned, f"order {{ {call} }}", loose=True)
    call = near[0] if kind != 2 else f"rrf({near[0]}, {near[1]})"
    if kind == 3:
        returned.add(call, approximate=True)
        call = f"c{len(returned.columns) - 1}"
    head = "return distinct" if author.one_in(5) else "return"
    return _query(author, clauses, head, returned, f"order {{ {call} }} {cut}", loose=False)


def _query(
    author: Author, clauses: list[str], head: str, returned: Returned, tail: str, *, loose: bool
) -> Query:
    params = ", ".join(f"${name}: {type_text}" for name, (type_text, _) in author.params.items())
    body = "\n    ".join(clauses)
    text = (
        f"query q({params}) {{\n  match {{\n    {body}\n  }}\n"
        f"  {head} {{ {', '.join(returned.columns)} }}\n  {tail}\n}}"
    )
    values = {name: value for name, (_, value) in author.params.items()}
    return Query(text, values, frozenset(returned.approximate), frozenset(returned.scored), loose)


_NUMERIC = sorted(INTEGERS | FLOATS)
_OFTEN = ["number", "text", "pattern", "chosen", "list", "null", "in"]
_FILTERS = ["compare"] * 6 + ["pair"] * 3 + _OFTEN * 2 + ["search", "path", "path"]


def _edge_name(edge: str) -> str:
    return edge[0].lower() + edge[1:]


def _other_kind(type_: ValueType) -> ValueType:
    return ValueType(Scalar.DATETIME if type_.scalar is Scalar.DATE else Scalar.DATE)


def _comparable(one: ValueType, other: ValueType) -> bool:
    return one.scalar is other.scalar or (one.scalar in _NUMERIC and other.scalar in _NUMERIC)
