"""Lint: what is wrong or suspicious in a query file, without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any
from typing import Literal as OneOf

from omnigraph.deferred_dataclass import dataclass
from omnigraph.diagnostics import Diagnostic
from omnigraph.errors import CompileError, QueryError
from omnigraph.lang.query import ast
from omnigraph.lang.query.block_names import find_shadowed_names
from omnigraph.lang.query.compile import Operation, check_query, describe_operation
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.planner import plan_read
from omnigraph.lang.query.resolved import (
    InsertEdge,
    InsertNode,
    Maybe,
    NotBlock,
    ResolvedMutation,
    ResolvedRead,
    Step,
    UpdateNodes,
    Where,
)
from omnigraph.lang.query.scope import ANONYMOUS
from omnigraph.lang.query.terms import (
    AllOf,
    AnyOf,
    Calc,
    CaseWhen,
    Coalesce,
    Const,
    InList,
    Not,
    NullCheck,
    Part,
    Predicate,
    children,
    negate_test,
    variables,
    walk,
)
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source


def find_mentions(read: ast.Read) -> Iterator[str]:
    """Every mention of a variable in a read, as often as it is written."""
    for part in (*read.match, *read.returns, *read.having, *read.order):
        yield from _find_mentions(part)


def _find_mentions(part: object) -> Iterator[str]:
    match part:
        case ast.VarRef(name=name):
            yield name
        case ast.PropRef(var=var) | ast.AllProperties(var=var):
            yield var
        case ast.Traversal(left=left, right=right, edge_var=edge_var, path=path):
            yield from (name for name in (left, right, edge_var, path) if name is not None)
        case tuple():
            for item in part:
                yield from _find_mentions(item)
        case ast.Syntax():
            if isinstance(part, ast.Binding):
                yield part.var
            for field in fields(part):
                yield from _find_mentions(getattr(part, field.name))


def find_optional_variables(clauses: tuple[ast.Clause, ...]) -> list[str]:
    """The named variables that optional blocks introduce, in source order."""
    seen = {
        name
        for clause in clauses
        if not isinstance(clause, ast.OptionalBlock)
        for name in _find_mentions(clause)
    }
    found: dict[str, None] = {}
    for clause in clauses:
        if isinstance(clause, ast.OptionalBlock):
            found.update(dict.fromkeys(name for name in _find_bound(clause.clauses) if name not in seen))
    return [name for name in found if name != ANONYMOUS]


def _find_bound(clauses: tuple[ast.Clause, ...]) -> Iterator[str]:
    for clause in clauses:
        match clause:
            case ast.Binding(var=var):
                yield var
            case ast.Traversal(path=path) if path is not None:
                yield path  # which tells whether there was a match
            case ast.Traversal(left=left, right=right, edge_var=edge_var):
                yield from (left, right)
                if edge_var is not None:
                    yield edge_var
            case ast.OptionalBlock(clauses=inner):
                yield from _find_bound(inner)


Severity = OneOf["error", "warning", "info"]
_SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")

LINT_CODES = {
    "Q000": "the file does not parse",
    "L201": "a nullable property that no update query sets",
    "L202": "a filter after an optional block on one of its variables",
    "L203": "offset without order",
    "L204": "a condition that cannot be true",
    "L205": "a variable of an optional block that is used nowhere else",
    "L206": "a query that type-checks but can never run",
    "L207": "a name that a not block keeps to itself and clauses behind it bind again",
}
NO_PARAMETERS = "mutation declares no params; hardcoded mutations are easy to miss"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to say about the file as a whole."""

    severity: Severity
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    query_names: tuple[str, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The finding as plain values; members that do not apply are left out."""
        found: dict[str, Any] = {"severity": self.severity, "code": self.code, "message": self.message}
        if self.type_name is not None:
            found["type_name"] = self.type_name
        if self.property is not None:
            found["property"] = self.property
        if self.query_names:
            found["query_names"] = list(self.query_names)
        if self.diagnostics:
            found["diagnostics"] = [diagnostic.to_json() for diagnostic in self.diagnostics]
        return found


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What lint says about one query."""

    name: str
    kind: OneOf["read", "mutation"]
    warnings: tuple[str, ...] = ()
    error: CompileError | None = None
    operation: Operation | None = None

    def to_json(self) -> dict[str, Any]:
        """The result as plain values; members that do not apply are left out."""
        status = "error" if self.error else "ok"
        found: dict[str, Any] = {"name": self.name, "kind": self.kind, "status": status}
        if self.warnings:
            found["warnings"] = list(self.warnings)
        if self.error is not None:
            found["error"] = self.error.message
            found["diagnostics"] = [diagnostic.to_json() for diagnostic in self.error.diagnostics]
        if self.operation is not None:
            found["operation"] = self.operation.to_json()
        return found


@dataclass(frozen=True, slots=True)
class LintReport:
    """Everything lint found in a query file."""

    results: tuple[QueryResult, ...]
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> int:
        """Queries that do not compile, plus findings that are errors."""
        return sum(result.error is not None for result in self.results) + self._count_findings("error")

    @property
    def warnings(self) -> int:
        """Warnings of queries and of the file."""
        return sum(len(result.warnings) for result in self.results) + self._count_findings("warning")

    @property
    def infos(self) -> int:
        """Remarks."""
        return self._count_findings("info")

    @property
    def status(self) -> OneOf["ok", "error"]:
        """`error` when the file cannot be used as it is."""
        return "error" if self.errors else "ok"

    def _count_findings(self, severity: Severity) -> int:
        return sum(finding.severity == severity for finding in self.findings)

    def to_json(self, schema_source: dict[str, str], query_path: str) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "status": self.status,
            "schema_source": schema_source,
            "query_path": query_path,
            "queries_processed": len(self.results),
            "errors": self.errors,
            "warnings": self.warnings,
            "infos": self.infos,
            "results": [result.to_json() for result in self.results],
            "findings": [finding.to_json() for finding in self.findings],
        }


def lint(source: Source, catalog: Catalog) -> LintReport:
    """Check every query of a file against a catalog."""
    try:
        file = parse_queries(source)
    except CompileError as error:
        return report_unparsed(error)
    return lint_parsed(file, source, catalog)


def lint_parsed(file: ast.QueryFile, source: Source, catalog: Catalog) -> LintReport:
    """Check every query of a file that was parsed already."""
    checked = [_check_query(query, catalog, source) for query in file.queries]
    findings = [finding for one in checked for finding in one.findings]
    findings += _unset_properties(checked, catalog)
    return LintReport(tuple(one.result for one in checked), tuple(sorted(findings, key=_sort_key)))


def report_unparsed(error: CompileError) -> LintReport:
    """The report on a file that cannot be read as queries at all."""
    return LintReport((), (Finding("error", "Q000", error.message, diagnostics=error.diagnostics),))


def _sort_key(finding: Finding) -> tuple[int, str, str, str]:
    position = _SEVERITIES.index(finding.severity)
    return position, finding.type_name or "", finding.property or "", finding.message


@dataclass(frozen=True, slots=True)
class _Checked:
    result: QueryResult
    findings: tuple[Finding, ...] = ()
    updates: tuple[UpdateNodes, ...] = ()


def _check_query(query: ast.Query, catalog: Catalog, source: Source) -> _Checked:
    warnings = (NO_PARAMETERS,) if query.is_mutation and not query.parameters else ()
    kind: OneOf["read", "mutation"] = "mutation" if query.is_mutation else "read"
    try:
        resolved = check_query(query, catalog, source)
    except CompileError as error:
        return _Checked(QueryResult(query.name, kind, warnings, error))
    result = QueryResult(query.name, kind, warnings, operation=describe_operation(resolved, catalog))
    if isinstance(resolved, ResolvedMutation):
        updates = tuple(item for item in resolved.statements if isinstance(item, UpdateNodes))
        tests = [item.where for item in resolved.statements if not isinstance(item, InsertNode | InsertEdge)]
        return _Checked(result, _to_warnings(query.name, _find_impossible(tests)), updates)
    assert isinstance(query.body, ast.Read)
    return _Checked(result, _to_warnings(query.name, _find_suspicions(query.body, resolved)))


def _to_warnings(query: str, found: Iterable[tuple[str, str]]) -> tuple[Finding, ...]:
    return tuple(
        Finding("warning", code, message, query_names=(query,)) for code, message in dict.fromkeys(found)
    )


# --- suspicions about one read -------------------------------------------------------------------


def _find_suspicions(read: ast.Read, resolved: ResolvedRead) -> Iterator[tuple[str, str]]:
    yield from _filters_on_optional(resolved.steps)
    if read.offset is not None and not read.order:
        yield "L203", "offset without order skips arbitrary rows; add an order"
    yield from _find_impossible(_find_tests(resolved.steps))
    uses = Counter(find_mentions(read))
    for var in find_optional_variables(read.match):
        if uses[var] == 1:
            yield "L205", f"optional variable ${var} is used nowhere else; the block only repeats rows"
    for var in find_shadowed_names(resolved.steps):
        two = f"${var} in the not block is not the ${var} bound behind it"
        yield "L207", f"{two}; bind it before the block, or call one of them differently"
    try:
        plan_read(resolved)
    except QueryError as error:
        yield "L206", f"query can never run: {error.reason}"


def _filters_on_optional(steps: tuple[Step, ...]) -> Iterator[tuple[str, str]]:
    optional: set[str] = set()
    for step in steps:
        if isinstance(step, Maybe):
            optional.update(step.adds)
            yield from _filters_on_optional(step.clauses)
        elif isinstance(step, NotBlock):
            yield from _filters_on_optional(step.clauses)
        elif isinstance(step, Where):
            for var in sorted(_removed_without_match(step.test) & optional):
                yield (
                    "L202",
                    f"filter on optional ${var} removes rows without a match; move it into the block",
                )


def _removed_without_match(test: Predicate) -> frozenset[str]:
    """The variables without whose match a test cannot be true."""
    match test:
        case NullCheck():
            return frozenset()
        case _ if any(isinstance(part, Coalesce | CaseWhen) for part in walk(test)):
            return frozenset()  # what is missing may have been replaced by another value
        case AllOf(tests=tests):
            return frozenset().union(*map(_removed_without_match, tests))
        case AnyOf(tests=tests):
            return frozenset.intersection(*map(_removed_without_match, tests))
        case Not(test=inner) if not isinstance(opposite := negate_test(inner), Not):
            return _removed_without_match(opposite)
    return variables(test)


def _find_tests(steps: tuple[Step, ...]) -> Iterator[Predicate]:
    for step in steps:
        if isinstance(step, Where):
            yield step.test
        elif isinstance(step, Maybe | NotBlock):
            yield from _find_tests(step.clauses)


def _find_impossible(tests: Iterable[Predicate]) -> Iterator[tuple[str, str]]:
    for test in tests:
        if reason := _never_true(test):
            yield "L204", reason


def _never_true(test: Predicate) -> str | None:
    if isinstance(test, AnyOf | AllOf | Not):
        return _never_true_together(test)
    if isinstance(test, InList) and isinstance(test.items, Const) and test.items.value == ():
        return "`in []` is never true"
    if isinstance(test, NullCheck):
        return None
    for part in _find_strict_parts(test):
        zero = (
            isinstance(part, Calc)
            and part.op == "/"
            and isinstance(part.right, Const)
            and part.right.value == 0
        )
        if zero:
            return "division by 0 is null, so the condition is never true"
    return None


def _find_strict_parts(part: Part) -> Iterator[Part]:
    """The parts that make a test null when they are null."""
    yield part
    if not isinstance(part, Coalesce | CaseWhen):
        for child in children(part):
            yield from _find_strict_parts(child)


def _never_true_together(test: AnyOf | AllOf | Not) -> str | None:
    match test:
        case AllOf(tests=tests):
            return next((reason for each in tests if (reason := _never_true(each))), None)
        case AnyOf(tests=tests):
            reasons = [_never_true(each) for each in tests]
            return reasons[0] if all(reasons) else None
        case Not(test=inner):
            opposite = negate_test(inner)
            return None if isinstance(opposite, Not) else _never_true(opposite)


# --- properties that no update sets --------------------------------------------------------------


def _unset_properties(checked: list[_Checked], catalog: Catalog) -> Iterator[Finding]:
    assigned: dict[str, set[str]] = {}
    names: dict[str, set[str]] = {}
    for one in checked:
        for update in one.updates:
            assigned.setdefault(update.type_name, set()).update(name for name, _ in update.values)
            names.setdefault(update.type_name, set()).add(one.result.name)
    for type_name, done in assigned.items():
        node = catalog.nodes[type_name]
        for declared in node.properties.values():
            is_settable = declared.type.nullable and declared.embed is None and declared.name not in node.key
            if is_settable and declared.name not in done:
                yield Finding(
                    "warning",
                    "L201",
                    f"{type_name}.{declared.name} exists in schema but no update query sets it",
                    type_name,
                    declared.name,
                    tuple(sorted(names[type_name])),
                )
