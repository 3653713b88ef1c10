"""A whole read, as plainly as it can be said: match, rank, project or aggregate, distinct, order, cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from omnigraph.lang.query.parameters import check_above_zero
from omnigraph.lang.query.resolved import (
    Bind,
    Count,
    Maybe,
    NotBlock,
    Output,
    ResolvedRead,
    Step,
    Traverse,
    Where,
)
from omnigraph.lang.query.terms import (
    Column,
    Distance,
    Fusion,
    ParamRef,
    Relevance,
    Term,
    Total,
    has_total,
    variables,
    walk,
)
from omnigraph.lang.types import ValueType
from omnigraph.lang.values import Stored
from tests.query.oracle.graph import Graph
from tests.query.oracle.match import Matcher
from tests.query.oracle.values import Row, Values, ranked_variable


@dataclass(frozen=True)
class Answer:
    """Column names and types, and rows of stored values."""

    columns: list[str]
    types: list[ValueType]
    rows: list[tuple[Any, ...]]
    in_order: bool
    """Whether the query settles the order of its rows."""


def answer(read: ResolvedRead, graph: Graph, params: Mapping[str, Stored], now: int) -> Answer:
    """What a checked read gives."""
    return _Reading(read, graph, params, now).answer()


class _Reading:
    def __init__(self, read: ResolvedRead, graph: Graph, params: Mapping[str, Stored], now: int) -> None:
        self._read = read
        self._graph = graph
        self._types = dict(_node_types(read.steps))
        self._values = Values(graph, params, now, self._types)
        self._matcher = Matcher(graph, self._values)
        self._limit = self._count(read.limit)
        self._offset = self._count(read.offset) or 0

    def _count(self, count: Count | None) -> int | None:
        found = count if count is None or isinstance(count, int) else self._values.value(count, {})
        assert found is None or found >= 0
        return found

    def answer(self) -> Answer:
        outputs = self._read.outputs
        names = [output.name for output in outputs]
        rows = self._matched()
        if any(has_total(output.term) for output in outputs):
            if not rows and not self._read.having and all(has_total(output.term) for output in outputs):
                names = ["?" if _is_bare_total(output) else output.name for output in outputs]
            result = self._ordered_result(self._distinct(self._grouped(rows)))
        elif self._read.distinct:
            result = self._ordered_result(self._distinct(self._projected(rows)))
        else:
            result = self._projected(self._ordered_rows(rows))
        end = None if self._limit is None else self._offset + self._limit
        types = [output.term.type for output in outputs]
        return Answer(names, types, result[self._offset : end], bool(self._read.order))

    # --- match and rank --------------------------------------------------------------------------

    def _matched(self) -> list[Row]:
        ranking = self._read.ranking
        if ranking is None:
            return self._matcher.solve(self._read.steps, {})
        if isinstance(ranking, Fusion):
            return self._fused(ranking)
        return self._ranked(ranking)

    def _ranked(self, by: Distance | Relevance) -> list[Row]:
        """The rows of the best nodes: by rank, then by the ids of edges, then by those of other nodes."""
        var = ranked_variable(by)
        best = self._best(by, var)
        rows = [row for row in self._matcher.solve(self._read.steps, {}) if _id(row, var) in best]
        edges = sorted(name for name, kind in self._read.variables.items() if kind == "edge")
        nodes = sorted(name for name, kind in self._read.variables.items() if kind == "node")
        ties = (*edges, *nodes)
        return sorted(
            rows,
            key=lambda row: (best.index(_id(row, var)), [_orderable(_id(row, name)) for name in ties]),
        )

    def _best(self, by: Distance | Relevance, var: str) -> list[str]:
        """The ids of the best nodes: those that pass their own filters, whatever else is asked of them."""
        scored = {}
        for row in self._matcher.solve(_candidates(self._read.steps, var), {}):
            score = self._values.value(by, row)
            if score is not None:
                scored[_id(row, var)] = score if isinstance(by, Distance) else -score
        best = sorted(scored, key=lambda id_: (scored[id_], id_))
        if isinstance(by, Relevance):
            return best
        assert self._limit is not None
        return best[: self._limit + self._offset]

    def _fused(self, ranking: Fusion) -> list[Row]:
        var = ranked_variable(ranking.first)
        arms = [self._ranked(ranking.first), self._ranked(ranking.second)]
        k = self._values.value(ranking.k, {})
        if isinstance(ranking.k, ParamRef):
            check_above_zero(ranking.k.name, k)
        for arm in arms:
            for rank, id_ in enumerate(dict.fromkeys(_id(row, var) for row in arm)):
                self._values.fused[id_] = self._values.fused.get(id_, 0) + 1 / (k + rank + 1)
        # Python keeps the order of equal scores: first arm, then second arm.
        scores = self._values.fused
        assert self._limit is not None
        best = sorted(scores, key=lambda id_: -scores[id_])[: self._limit + self._offset]
        return [row for id_ in best for row in _first_with(arms, var, id_)]

    # --- project, aggregate, distinct ------------------------------------------------------------

    def _projected(self, rows: Iterable[Row]) -> list[tuple[Any, ...]]:
        return [tuple(self._values.value(output.term, row) for output in self._read.outputs) for row in rows]

    def _grouped(self, rows: list[Row]) -> list[tuple[Any, ...]]:
        keys = [output.term for output in self._read.outputs if not has_total(output.term)]
        groups: dict[Any, list[Row]] = {} if keys else {(): []}
        for row in rows:
            groups.setdefault(tuple(self._values.value(key, row) for key in keys), []).append(row)
        found = (self._group_row(group) for group in groups.values())
        return [row for row in found if row is not None]

    def _group_row(self, rows: list[Row]) -> tuple[Any, ...] | None:
        roots = [*(output.term for output in self._read.outputs), *self._read.having]
        parts = (part for root in roots for part in walk(root))
        totals = {part: self._total(part, rows) for part in parts if isinstance(part, Total)}
        first = rows[0] if rows else {}
        if not all(self._values.truth(test, first, totals) is True for test in self._read.having):
            return None
        return tuple(self._values.value(output.term, first, totals) for output in self._read.outputs)

    def _total(self, total: Total, rows: list[Row]) -> Any:
        found = [self._values.value(total.argument, row) for row in rows]
        present = [value for value in found if value is not None]
        if total.fn == "count":
            return len(set(present)) if total.distinct else len(present)
        if total.fn == "collect":
            return tuple(sorted(dict.fromkeys(present) if total.distinct else present, key=_orderable))
        if not present:
            return None
        if total.fn == "min":
            return min(present)
        if total.fn == "max":
            return max(present)
        exact = sum(map(Fraction, map(float, present)), Fraction(0))
        return _nearest(exact if total.fn == "sum" else exact / len(present))

    def _distinct(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return list(dict.fromkeys(rows)) if self._read.distinct else rows

    # --- order -----------------------------------------------------------------------------------

    def _ordered_rows(self, rows: list[Row]) -> list[Row]:
        if self._read.ranking is not None or not self._read.order:
            return rows
        for var in sorted(self._read.variables, reverse=True):
            rows = sorted(rows, key=lambda row, var=var: _orderable(_id(row, var)))  # type: ignore[misc]
        for item in reversed(self._read.order):
            term = self._output(item.term.name).term if isinstance(item.term, Column) else item.term
            rows = sorted(
                rows,
                key=lambda row, term=term: _orderable(self._values.value(term, row)),  # type: ignore[misc]
                reverse=item.direction == "desc",
            )
        return rows

    def _ordered_result(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        if self._read.ranking is not None or not self._read.order:
            return rows
        for column in reversed(range(len(self._read.outputs))):
            rows = sorted(rows, key=lambda row, at=column: _orderable(row[at]))  # type: ignore[misc]
        for item in reversed(self._read.order):
            column = self._position(item.term)
            rows = sorted(
                rows,
                key=lambda row, at=column: _orderable(row[at]),  # type: ignore[misc]
                reverse=item.direction == "desc",
            )
        return rows

    def _output(self, name: str) -> Output:
        return next(output for output in self._read.outputs if output.name == name)

    def _position(self, term: Term) -> int:
        if isinstance(term, Column):
            return self._read.outputs.index(self._output(term.name))
        return [output.term for output in self._read.outputs].index(term)


def _orderable(value: Any) -> tuple[bool, Any]:
    """Null before everything; texts by their bytes, lists item by item."""
    if value is None:
        return (False, 0)
    if isinstance(value, tuple):
        return (True, tuple(map(_orderable, value)))
    return (True, value.encode() if isinstance(value, str) else value)


def _nearest(exact: Fraction) -> float | None:
    """The float nearest to a number, unless that is out of range."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return None


def _id(row: Row, var: str) -> Any:
    entity = row[var]
    return None if entity is None else entity.id


def _is_bare_total(output: Output) -> bool:
    return isinstance(output.term, Total) and not output.aliased


def _first_with(arms: Sequence[list[Row]], var: str, id_: str) -> list[Row]:
    return next(found for arm in arms if (found := [row for row in arm if _id(row, var) == id_]))


def _node_types(steps: Sequence[Step]) -> Iterable[tuple[str, str]]:
    for step in steps:
        match step:
            case Bind(var, type_name):
                yield var, type_name
            case Traverse(left=left, left_type=left_type, right=right, right_type=right_type):
                yield left, left_type
                yield right, right_type
            case NotBlock(clauses=clauses) | Maybe(clauses=clauses):
                yield from _node_types(clauses)


def _candidates(steps: Sequence[Step], var: str) -> list[Step]:
    """What decides which nodes are ranked: the variable's own bindings and filters.

    A variable without a binding stands for the nodes that the first traversal to it reaches.
    """
    own = [step for step in steps if isinstance(step, Where) and variables(step.test) == {var}]
    bindings = [step for step in steps if isinstance(step, Bind) and step.var == var]
    if bindings:
        return [*bindings, *own]
    first = next(
        at for at, step in enumerate(steps) if isinstance(step, Traverse) and var in (step.left, step.right)
    )
    return [*steps[: first + 1], *own]
