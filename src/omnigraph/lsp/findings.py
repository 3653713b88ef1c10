"""What the checkers find in a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from omnigraph.deferred_dataclass import dataclass
from omnigraph.diagnostics import Diagnostic
from omnigraph.errors import CompileError
from omnigraph.lang.query.lint import lint
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Found:
    """A finding and where it is; lines and columns begin at 0."""

    message: str
    severity: Severity
    line: int = 0
    column: int = 0
    width: int = 1
    code: str | None = None


def check_schema_text(text: str) -> list[Found]:
    """Return the mistakes of a schema."""
    try:
        compile_schema(Source(text))
    except CompileError as error:
        return [_from_diagnostic(one, "error") for one in error.diagnostics]
    return []


def check_query_text(text: str, catalog: Catalog | None) -> list[Found]:
    """Return the mistakes of a query file; without a schema only those of its grammar."""
    try:
        source = Source(text)
        if catalog is None:
            parse_queries(source)
            return []
        return list(_lint(source, catalog))
    except CompileError as error:
        return [_from_diagnostic(one, "error") for one in error.diagnostics]


def _lint(source: Source, catalog: Catalog) -> Iterator[Found]:
    report = lint(source, catalog)
    for result in report.results:
        if result.error is not None:
            yield from (_from_diagnostic(one, "error") for one in result.error.diagnostics)
        line, column = _place_of_query(source, result.name)
        for warning in result.warnings:
            yield Found(warning, "warning", line, column, len(result.name))
    for finding in report.findings:
        if finding.diagnostics:
            yield from (_from_diagnostic(one, finding.severity, finding.code) for one in finding.diagnostics)
        else:
            names = finding.query_names
            line, column = _place_of_query(source, names[0]) if names else (0, 0)
            yield Found(finding.message, finding.severity, line, column, 1, finding.code)


def _from_diagnostic(found: Diagnostic, severity: Severity, code: str | None = None) -> Found:
    message = found.message.removeprefix(f"{found.code}: ")
    text = message if found.help is None else f"{message}\n{found.help}"
    return Found(text, severity, found.line - 1, found.column - 1, found.width, found.code or code)


def _place_of_query(source: Source, name: str) -> tuple[int, int]:
    """Return where a query is declared."""
    for number, line in enumerate(source.text.split("\n")):
        column = line.find(f"query {name}")
        if column >= 0:
            return number, column + len("query ")
    return 0, 0
