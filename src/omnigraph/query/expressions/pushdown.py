"""Which tests of a scan Lance can answer with exactly the same meaning, and which stay for Arrow.

Lance gets tests of one column against values known beforehand, and alternatives of such tests: these are
bound to the column's type first and mean the same everywhere. Calculations, changes of case and
comparisons of columns with each other stay here, where numbers and letters follow our rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.root import wall_clock
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.predicate import Bindings, bind_predicate, render_predicate, render_test
from omnigraph.errors import BadRequest
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.lang.query.resolved import DeleteEdges, DeleteNodes
from omnigraph.lang.query.terms import (
    AllOf,
    AnyOf,
    Compare,
    Const,
    Distance,
    EntityId,
    Fusion,
    Has,
    InList,
    Instant,
    NullCheck,
    ParamRef,
    Predicate,
    Prop,
    Relevance,
    Term,
    TextMatch,
    TextTest,
    children,
)
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import Scalar

NO_ROWS = "false"
"""The filter that no row passes."""


def lance_filter(
    var: str, predicates: Sequence[Predicate], bindings: Bindings
) -> tuple[str | None, tuple[Predicate, ...]]:
    """The filter for Lance, if any, and the predicates that are still to be tested on its rows."""
    asked = [_render(test, bindings) for test in predicates if is_expressible(test, var)]
    rest = tuple(test for test in predicates if not is_expressible(test, var))
    if not asked:
        return None, rest
    return (NO_ROWS if NO_ROWS in asked else " AND ".join(f"({test})" for test in asked)), rest


def _render(test: Predicate, bindings: Bindings) -> str:
    match test:
        case AnyOf(tests=tests):
            arms = [arm for each in tests if (arm := _render(each, bindings)) != NO_ROWS]
            return " OR ".join(f"({arm})" for arm in arms) if arms else NO_ROWS
        case AllOf(tests=tests):
            arms = [_render(each, bindings) for each in tests]
            return NO_ROWS if NO_ROWS in arms else " AND ".join(f"({arm})" for arm in arms)
    return render_test(bind_predicate(test, bindings))


def list_needed_columns(predicates: Iterable[Predicate]) -> tuple[str, ...]:
    """The columns from which predicates on one variable are evaluated, in the order they are met."""
    found = (_find_names(test) for test in predicates)
    return tuple(dict.fromkeys(name for names in found for name in names))


def _find_names(part: Term | Predicate) -> Iterator[str]:
    match part:
        case Prop(name=name):
            yield name
        case EntityId():
            yield ID
        case Distance() | Relevance() | Fusion() | TextMatch():
            return  # a search brings its values along
        case _:
            for child in children(part):
                yield from _find_names(child)


def is_expressible(test: Predicate, var: str) -> bool:
    """Whether a predicate tests single columns of the variable against values known beforehand."""
    match test:
        case AnyOf(tests=tests) | AllOf(tests=tests):
            return all(is_expressible(each, var) for each in tests)
        case Compare(left=left, right=right):
            return (_is_column(left, var) and _is_given(right)) or (
                _is_given(left) and _is_column(right, var)
            )
        case InList(argument=column, items=given):
            return _is_column(column, var) and _is_given(given)
        case Has(items=column, item=given) | TextTest(text=column, part=given):
            return _is_column(column, var) and _is_given(given)
        case NullCheck(argument=column):
            return _is_column(column, var)
    return False


def _is_column(term: Term, var: str) -> bool:
    """A column of the variable; how a Blob is laid out is not to be looked into."""
    if not isinstance(term, Prop | EntityId):
        return False
    return term.var == var and term.type.scalar is not Scalar.BLOB


def _is_given(term: Term) -> bool:
    return isinstance(term, Const | ParamRef | Instant)


# --- comparisons as users write them ------------------------------------------------------------

_KINDS = {"node": DeleteNodes, "edge": DeleteEdges}


def compile_filter(catalog: Catalog, key: str, where: str | Sequence[str]) -> str:
    """Return the Lance filter for comparisons, each written as after `where` in a mutation: `age >= 30`."""
    given = where.splitlines() if isinstance(where, str) else where
    wanted = [text for text in given if text.strip()]
    if not wanted:
        raise BadRequest("a filter needs a comparison", remedy='as in `where="age >= 30"`')
    return " AND ".join(f"({_compile_comparison(catalog, key, text)})" for text in wanted)


def _compile_comparison(catalog: Catalog, key: str, text: str) -> str:
    kind, name = split_key(key)
    # The tests of a mutation are exactly those that Lance answers as we do.
    compiled = compile_query(f"query rows() {{ delete {name} where {text} }}", catalog)
    match compiled:
        case CompiledMutation(statements=(DeleteNodes() | DeleteEdges() as found,)):
            if isinstance(found, _KINDS[kind]):
                return render_predicate(found.where, Bindings(now=wall_clock() // 1000))
    raise BadRequest(f"'{text}' is not one comparison", remedy='write one, as in `where="age >= 30"`')
