"""Checks statements by the plans of a Spark in this process: every class of every node is on a list.

The parsed plan is checked before Spark analyses it, because analysis evaluates constants: an `IDENTIFIER` or
the schema of a `from_json` could call a function then. The analysed plan shows what names mean.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from omnigraph.pipeline.sql_guard import plan_classes
from omnigraph.pipeline.sql_guard.permitted import FUNCTIONS, is_permitted, is_permitted_relation
from omnigraph.pipeline.sql_guard.refusal import (
    refuse_substitution,
    refused_function,
    refused_part,
    refused_relation,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPARK = "org.apache.spark.sql.catalyst."
_BUILTIN = (["builtin"], ["system", "builtin"])
_SUBQUERIES = frozenset({"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"})
_PARSED_EXPRESSIONS = plan_classes.EXPRESSIONS | plan_classes.PARSED_EXPRESSIONS
_PARSED_PLANS = plan_classes.PLANS | plan_classes.PARSED_PLANS


class PlanGuard:
    """The guard of a session in this process."""

    def __init__(self, spark: SparkSession) -> None:
        session: Any = spark
        self._parser = session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - no public way
        self._classes = _function_classes(session._jvm)  # noqa: SLF001

    def check_query(self, sql: str, views: Collection[str]) -> str:
        """Check the parsed plan of a query."""
        refuse_substitution(sql)
        self._check_parsed_plan(self._parser.parsePlan(sql))
        return sql

    def check_expression(self, sql: str, views: Collection[str]) -> str:
        """Check a parsed expression with its subqueries."""
        refuse_substitution(sql)
        self._check_parsed(self._parser.parseExpression(sql))
        return sql

    def check_frame(self, frame: DataFrame, views: Collection[str], base: str | None = None) -> None:
        """Check the analysed plan of a DataFrame, down to the views."""
        analysed: Any = frame
        known = frozenset(view.lower() for view in views)
        self._check_analysed_plan(analysed._jdf.queryExecution().analyzed(), known, base)  # noqa: SLF001

    def _check_parsed_plan(self, plan: Any) -> None:
        name = _class_of(plan)
        if name == "UnresolvedRelation":
            _require_single_name(_list_texts(plan.multipartIdentifier()))
        elif name == "UnresolvedTableValuedFunction":
            _require_function(_list_texts(plan.name()), is_permitted_relation)
        elif name not in _PARSED_PLANS:
            raise refused_part(_describe_node(plan, name))
        for expression in _list_items(plan.expressions()):
            self._check_parsed(expression)
        # Other plans have their subqueries there, which belong to expressions.
        named = _list_items(plan.innerChildren()) if name == "UnresolvedWith" else ()
        for child in (*named, *_list_items(plan.children())):
            self._check_parsed_plan(child)

    def _check_parsed(self, expression: Any) -> None:
        name = _class_of(expression)
        if name == "UnresolvedFunction":
            _require_function(_list_texts(expression.nameParts()), is_permitted)
        elif name == "UnresolvedGenerator":
            _require_function([str(expression.name().unquotedString())], is_permitted)
        elif name not in _PARSED_EXPRESSIONS and not self._is_function(expression):
            raise refused_part(_describe_node(expression, name))
        for child in _list_items(expression.children()):
            self._check_parsed(child)
        if name in _SUBQUERIES:
            self._check_parsed_plan(expression.plan())

    def _check_analysed_plan(
        self, plan: Any, views: frozenset[str], base: str | None, alias: str | None = None
    ) -> None:
        name = _class_of(plan)
        if name == "View":
            _require_view(plan, views)
            return
        if name == "SubqueryAlias":
            if base is not None and str(plan.alias()) == base:
                return
            alias = ".".join((*_list_texts(plan.identifier().qualifier()), str(plan.alias())))
        if name not in plan_classes.PLANS:
            raise refused_part(_describe_node(plan, name)) if alias is None else refused_relation(alias)
        for expression in _list_items(plan.expressions()):
            self._check_analysed(expression)
        for child in (*_list_items(plan.innerChildren()), *_list_items(plan.children())):
            self._check_analysed_plan(child, views, base, alias)

    def _check_analysed(self, expression: Any) -> None:
        # Subqueries are inner children of the plan that this expression is in.
        if _class_of(expression) not in plan_classes.EXPRESSIONS and not self._is_function(expression):
            raise refused_function(str(expression.prettyName()))
        for child in _list_items(expression.children()):
            self._check_analysed(child)

    def _is_function(self, expression: Any) -> bool:
        return str(expression.getClass().getName()) in self._classes


@cache
def _function_classes(jvm: Any) -> frozenset[str]:
    """The classes of the permitted functions that are built into this Spark."""
    catalyst = jvm.org.apache.spark.sql.catalyst
    registry = catalyst.analysis.FunctionRegistry.builtin()
    found = (registry.lookupFunction(catalyst.FunctionIdentifier(name)) for name in sorted(FUNCTIONS))
    return frozenset(str(info.get().getClassName()) for info in found if info.isDefined())


def _class_of(node: Any) -> str:
    """The class of a node without its package; the full name of one that is not part of Spark SQL itself."""
    name = str(node.getClass().getName())
    return name.rpartition(".")[2] if name.startswith(_SPARK) else name


def _describe_node(node: Any, name: str) -> str:
    match name:
        case "ScriptTransformation":
            return "`TRANSFORM ... USING`, which runs a program,"
        case "PlanWithUnresolvedIdentifier" | "ExpressionWithUnresolvedIdentifier":
            return "`IDENTIFIER` of an expression"
    return f"'{node.nodeName()}'"


def _require_function(parts: list[str], permitted: Callable[[str], bool]) -> None:
    *qualifier, name = parts
    if not permitted(name) or (qualifier and [part.lower() for part in qualifier] not in _BUILTIN):
        raise refused_function(".".join(parts))


def _require_single_name(parts: list[str]) -> None:
    # Of a single name analysis shows whether it is a view.
    if len(parts) > 1:
        raise refused_relation(".".join(parts))


def _require_view(plan: Any, views: frozenset[str]) -> None:
    identifier = plan.desc().identifier()
    known = str(identifier.table()).lower() in views
    if not (known and plan.isTempView()) or identifier.database().isDefined():
        raise refused_relation(str(identifier.unquotedString()))


def _list_items(sequence: Any) -> Iterator[Any]:
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _list_texts(sequence: Any) -> list[str]:
    return [str(text) for text in _list_items(sequence)]
