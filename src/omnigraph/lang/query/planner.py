"""Resolved read to logical plan.

Clauses of a block are a conjunction, so the plan is free in their order: it starts each group of
connected variables at its first binding, walks every traversal as soon as one end is known, and
tests each filter as early as its variables allow. Only `optional` cuts the list in two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from omnigraph.errors import QueryError
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.block_names import make_names_unique
from omnigraph.lang.query.check_read import find_output
from omnigraph.lang.query.resolved import (
    Bind,
    EdgeDirection,
    Maybe,
    NotBlock,
    OrderBy,
    Output,
    ResolvedRead,
    Step,
    Traverse,
    Where,
)
from omnigraph.lang.query.simplify import simplify_steps
from omnigraph.lang.query.terms import (
    Column,
    Distance,
    EntityId,
    Fusion,
    NullCheck,
    Predicate,
    Prop,
    Relevance,
    ShortestPath,
    Term,
    Total,
    has_total,
    paths,
    variables,
    walk,
)
from omnigraph.lang.types import STRING, Scalar

_REVERSED: dict[EdgeDirection, EdgeDirection] = {"out": "in", "in": "out", "both": "both"}


def plan_read(read: ResolvedRead) -> p.Plan:
    """The logical plan of a checked read."""
    _check_outputs(read)
    rows = _plan_match(read)
    totals = any(has_total(output.term) for output in read.outputs)
    if totals or read.distinct:
        rows = _plan_order_by_rank(read, rows)
        result = _plan_grouping(read, rows) if totals else p.Distinct(_plan_projection(read, rows))
        if totals and read.distinct:
            result = p.Distinct(result)
        result = _plan_sort(read, result)
    else:
        result = _plan_projection(read, _plan_order(read, rows))
    if read.limit is None and read.offset is None:
        return result
    return p.Limit(result, read.limit, read.offset)


def _check_outputs(read: ResolvedRead) -> None:
    for output in read.outputs:
        if any(isinstance(part, Column) for part in walk(output.term)):
            raise QueryError(
                f"unsupported projection expression: {output.name}",
                remedy="return a property, variable, value or call; names of columns serve `order` only",
            )


# --- match and rank ------------------------------------------------------------------------------


def _plan_match(read: ResolvedRead) -> p.Plan:
    ranking, steps = read.ranking, simplify_steps(make_names_unique(read.steps))
    if isinstance(ranking, Fusion):
        first, second = (_Block(read, by).plan_steps(steps) for by in (ranking.first, ranking.second))
        return p.Fuse(first, second, ranking, read.limit, read.offset)
    return _Block(read, ranking).plan_steps(steps)


class _Block:
    """Plans one clause list, from nothing or from the row around a nested block."""

    def __init__(
        self,
        read: ResolvedRead,
        ranking: Distance | Relevance | None,
        outer: Iterable[str] = (),
        maybe_null: Iterable[str] = (),
        paths_around: Iterable[ShortestPath] = (),
    ) -> None:
        self._read = read
        self._ranking = ranking
        self._bound: set[str] = set(outer)
        self._maybe_null: set[str] = set(maybe_null)
        self._rows: p.Plan | None = p.Outer(tuple(sorted(self._bound))) if self._bound else None
        self._tests: list[Predicate] = []
        self._paths: set[ShortestPath] = set(paths_around)

    def plan_steps(self, steps: tuple[Step, ...]) -> p.Plan:
        if self._ranking is not None:
            steps = _tests_before_rank(steps, variables(self._ranking))
        start = 0
        for position, step in enumerate(steps):
            if isinstance(step, Maybe):
                self._plan_conjunction(steps[start:position])
                self._plan_optional(step)
                start = position + 1
        self._plan_conjunction(steps[start:])
        if self._rows is None:
            raise QueryError("match binds no variable", remedy="bind at least one node: `$p: Person`")
        return self._rows

    def _plan_optional(self, step: Maybe) -> None:
        block = self._nested_block(self._bound).plan_steps(step.clauses)
        assert self._rows is not None
        self._rows = p.OptionalJoin(self._rows, block, step.adds)
        self._bound.update(step.adds)
        self._maybe_null.update(step.adds)
        self._paths.update(_find_paths(step.clauses))

    def _nested_block(self, outer: Iterable[str]) -> _Block:
        """A planner for a block nested in this one that sees these variables."""
        return _Block(self._read, None, outer, self._maybe_null.intersection(outer), self._paths)

    def _plan_conjunction(self, steps: tuple[Step, ...]) -> None:
        self._tests = [step.test for step in steps if isinstance(step, Where)]
        pending = _Pattern(steps, self._bound)
        self._retest_bound(pending)
        while pending:
            self._rows = self._plan_component(pending)
        if self._rows is not None:
            self._rows = self._add_tests(self._rows, self._bound)
        for step in steps:
            if isinstance(step, NotBlock):
                self._plan_negation(step)

    def _retest_bound(self, pending: _Pattern) -> None:
        """A second binding of a variable adds tests; a null one is no node and fails them all."""
        for var in [var for var in pending.bindings if var in self._bound]:
            tests = pending.bindings.pop(var).tests
            if var in self._maybe_null:
                self._tests.append(NullCheck(EntityId(var, STRING.with_nullable()), negated=True))
            self._tests.extend(tests)

    def _plan_negation(self, step: NotBlock) -> None:
        assert self._rows is not None
        self._rows = p.AntiJoin(self._rows, self._nested_block(step.outer).plan_steps(step.clauses))

    def _plan_component(self, pending: _Pattern) -> p.Plan:
        """Plan the traversals that the rows so far reach, else one more group of variables beside them."""
        traversal = pending.take_reachable(self._bound)
        if traversal is not None:
            assert self._rows is not None
            return self._plan_walk(self._rows, traversal, pending, self._bound)
        reached: set[str] = set()
        group = self._plan_scan(pending.take_root(), reached)
        # A walk to what is bound beside the group has to wait until both stand in one row.
        while (traversal := pending.take_reachable(reached, apart_from=self._bound)) is not None:
            group = self._plan_walk(group, traversal, pending, reached)
        self._bound |= reached
        return group if self._rows is None else self._add_tests(p.Cross(self._rows, group), self._bound)

    def _plan_scan(self, binding: Bind, reached: set[str]) -> p.Plan:
        reached.add(binding.var)
        where = (*binding.tests, *self._take_tests(reached))
        return self._add_ranking(p.Scan(binding.var, binding.type_name, where), binding.var)

    def _plan_walk(self, rows: p.Plan, step: Traverse, pending: _Pattern, reached: set[str]) -> p.Plan:
        forward = pending.starts_left(step, reached)
        source, target = (step.left, step.right) if forward else (step.right, step.left)
        target_type = step.right_type if forward else step.left_type
        direction = step.direction if forward else _REVERSED[step.direction]
        closes = target in reached or target == source
        grown: p.Plan = p.Expand(
            rows,
            source,
            target,
            target_type,
            step.edge_type,
            direction,
            step.minimum,
            step.maximum,
            step.edge_var,
            closes,
            step.path,
        )
        reached.add(target)
        if step.path is not None:
            self._paths.add(step.path)
        if step.edge_var is not None:
            reached.add(step.edge_var)
        binding = pending.bindings.pop(target, None)
        tests = (*(binding.tests if binding else ()), *self._take_tests(reached))
        if tests:
            grown = p.Filter(grown, tests)
        return grown if closes else self._add_ranking(grown, target)

    def _add_ranking(self, rows: p.Plan, var: str) -> p.Plan:
        """Rank where the variable first appears: its own filters are applied, later ones are not."""
        if self._ranking is None or var not in variables(self._ranking):
            return rows
        return p.Search(rows, self._ranking, self._read.limit, self._read.offset)

    def _take_tests(self, known: set[str]) -> tuple[Predicate, ...]:
        """The tests whose variables and paths are there."""
        ready = [test for test in self._tests if variables(test) <= known and paths(test) <= self._paths]
        self._tests = [test for test in self._tests if test not in ready]
        return tuple(ready)

    def _add_tests(self, rows: p.Plan, known: set[str]) -> p.Plan:
        tests = self._take_tests(known)
        return p.Filter(rows, tests) if tests else rows


def _tests_before_rank(steps: tuple[Step, ...], ranked: frozenset[str]) -> tuple[Step, ...]:
    """Move tests of the ranked variable to where it is bound: they count before the best are chosen,
    even when they are written behind an optional block."""
    bound = next(i for i, step in enumerate(steps) if _binds_any(step, ranked)) + 1
    early = [step for step in steps[bound:] if _tests_only(step, ranked)]
    late = [step for step in steps[bound:] if not _tests_only(step, ranked)]
    return (*steps[:bound], *early, *late)


def _binds_any(step: Step, names: frozenset[str]) -> bool:
    if isinstance(step, Traverse):
        return step.left in names or step.right in names
    return isinstance(step, Bind) and step.var in names


def _find_paths(steps: tuple[Step, ...]) -> Iterator[ShortestPath]:
    """The paths that clauses leave behind."""
    for step in steps:
        if isinstance(step, Traverse) and step.path is not None:
            yield step.path
        elif isinstance(step, Maybe):
            yield from _find_paths(step.clauses)


def _tests_only(step: Step, names: frozenset[str]) -> bool:
    if isinstance(step, Where):
        return variables(step.test) == names
    return isinstance(step, Bind) and step.var in names


class _Pattern:
    """The bindings and traversals of a clause list that are not planned yet."""

    def __init__(self, steps: tuple[Step, ...], bound: set[str]) -> None:
        self.bindings: dict[str, Bind] = {}
        self.traversals: list[Traverse] = [step for step in steps if isinstance(step, Traverse)]
        for step in steps:
            if isinstance(step, Bind):
                known = self.bindings.get(step.var)
                self.bindings[step.var] = replace(known, tests=known.tests + step.tests) if known else step
        self._from_right = _find_right_starts(self.traversals, {*self.bindings, *bound})

    def __bool__(self) -> bool:
        return bool(self.bindings or self.traversals)

    def take_reachable(self, reached: set[str], apart_from: Collection[str] = ()) -> Traverse | None:
        """The first traversal that can be walked from a known end."""
        for step in self.traversals:
            if step.left in apart_from or step.right in apart_from:
                continue
            if self.starts_left(step, reached) or self._starts_right(step, reached):
                self.traversals.remove(step)
                return step
        return None

    def starts_left(self, step: Traverse, reached: set[str]) -> bool:
        """Whether a traversal is walked from its left end."""
        return step.left in reached and not (step.minimum > 1 and step in self._from_right)

    def _starts_right(self, step: Traverse, reached: set[str]) -> bool:
        return step.right in reached and not (step.minimum > 1 and step not in self._from_right)

    def take_root(self) -> Bind:
        """The first binding left, else the left end of the first traversal."""
        if self.bindings:
            return self.bindings.pop(next(iter(self.bindings)))
        step = self.traversals[0]
        return Bind(step.left, step.left_type)


def _find_right_starts(traversals: list[Traverse], known: set[str]) -> list[Traverse]:
    """The traversals that begin at their right end, because only that is bound when their turn comes.

    Which end it is shows from the second hop on: a self-loop on the way counts at the hop it is met.
    """
    waiting, found = list(traversals), []
    while waiting:
        step = next((each for each in waiting if each.left in known or each.right in known), waiting[0])
        if step.left not in known and step.right in known:
            found.append(step)
        waiting.remove(step)
        known |= {step.left, step.right}
    return found


# --- order, project, aggregate -------------------------------------------------------------------


def _plan_projection(read: ResolvedRead, rows: p.Plan) -> p.Plan:
    return p.Project(rows, _list_outputs(read))


def _list_outputs(read: ResolvedRead) -> tuple[p.Output, ...]:
    return tuple(p.Output(output.name, output.term, output.aliased) for output in read.outputs)


def _plan_order(read: ResolvedRead, rows: p.Plan) -> p.Plan:
    """Rows in the order asked for, before they are projected."""
    if read.ranking is not None:
        return _plan_order_by_rank(read, rows)
    if not read.order:
        return rows
    keys = tuple(p.Key(_row_term(read, item), item.direction == "desc") for item in read.order)
    return p.Order(rows, keys, tuple(sorted(read.variables)))


def _row_term(read: ResolvedRead, item: OrderBy) -> Term:
    found = _named_output(read, item.term.name).term if isinstance(item.term, Column) else item.term
    if not (isinstance(item.term, Column | Prop) and _is_sortable(found)):
        raise _unsupported_order(item)
    return found


def _plan_order_by_rank(read: ResolvedRead, rows: p.Plan) -> p.Plan:
    if read.ranking is None:
        return rows
    ranked = read.ranking.first if isinstance(read.ranking, Fusion) else read.ranking
    first = sorted(variables(ranked))
    edges = sorted(var for var, kind in read.variables.items() if kind == "edge")
    rest = sorted(var for var in read.variables if var not in first and var not in edges)
    # Rows of one ranked node stay together, by edge before anything else.
    descending = not isinstance(read.ranking, Distance)
    return p.Order(rows, (p.Key(read.ranking, descending),), (*first, *edges, *rest))


def _plan_grouping(read: ResolvedRead, rows: p.Plan) -> p.Plan:
    keys = tuple(dict.fromkeys(output.term for output in read.outputs if not has_total(output.term)))
    roots = (*(output.term for output in read.outputs), *read.having)
    parts = (part for root in roots for part in walk(root))
    totals = tuple(dict.fromkeys(part for part in parts if isinstance(part, Total)))
    return p.Aggregate(rows, keys, totals, _list_outputs(read), read.having)


def _plan_sort(read: ResolvedRead, result: p.Plan) -> p.Plan:
    """Result rows in the order asked for; a ranking has ordered them already."""
    if read.ranking is not None or not read.order:
        return result
    return p.Sort(result, tuple(_result_key(read, item) for item in read.order))


def _result_key(read: ResolvedRead, item: OrderBy) -> p.Key:
    if isinstance(item.term, Column):
        output: Output | None = _named_output(read, item.term.name)
    else:
        output = next((output for output in read.outputs if output.term == item.term), None)
    if output is None or not isinstance(item.term, Column | Prop) or not _is_sortable(output.term):
        raise _unsupported_order(item)
    return p.Key(Column(output.name, output.term.type), item.direction == "desc")


def _named_output(read: ResolvedRead, name: str) -> Output:
    output = find_output(read.outputs, name)
    if output is None:
        names = ", ".join(output.name for output in read.outputs)
        raise QueryError(f"alias '{name}' not found for ordering", remedy=f"returned columns are: {names}")
    return output


def _is_sortable(found: Term) -> bool:
    return not found.type.is_list and found.type.scalar is not Scalar.VECTOR


def _unsupported_order(item: OrderBy) -> QueryError:
    return QueryError(
        f"unsupported ordering expression: {item.source}",
        remedy="order by a property, or give the expression an alias in `return` and order by that",
    )
