"""Conditions rewritten for engines: negations at single tests, conjunctions as tests of their own.

Patterns that amount to a comparison become one. Each test of a conjunction can then be asked where its
variables are known, by an index if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from omnigraph.lang.query.patterns import simplify_pattern
from omnigraph.lang.query.resolved import Maybe, NotBlock, Step, Where
from omnigraph.lang.query.terms import AllOf, AnyOf, Not, PatternTest, Predicate, negate_test


def simplify_steps(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The same clauses, with every condition in as many tests as it is a conjunction of."""
    return tuple(found for step in steps for found in _simplify_step(step))


def _simplify_step(step: Step) -> Iterator[Step]:
    match step:
        case Where(test=test):
            yield from (Where(each) for each in _split(_settle_negations(test)))
        case NotBlock(clauses=clauses) | Maybe(clauses=clauses):
            yield replace(step, clauses=simplify_steps(clauses))
        case _:
            yield step


def _settle_negations(test: Predicate) -> Predicate:
    match test:
        case AllOf(tests=tests):
            return AllOf(tuple(map(_settle_negations, tests)))
        case AnyOf(tests=tests):
            return AnyOf(tuple(map(_settle_negations, tests)))
        case Not(test=inner):
            opposite = negate_test(inner)
            if isinstance(opposite, Not):
                simple = _settle_negations(inner)
                return opposite if simple == inner else _settle_negations(Not(simple))
            return _settle_negations(opposite)
        case PatternTest():
            return simplify_pattern(test)
    return test


def _split(test: Predicate) -> Iterator[Predicate]:
    if isinstance(test, AllOf):
        for each in test.tests:
            yield from _split(each)
    else:
        yield test
