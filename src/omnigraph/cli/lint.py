"""`omnigraph lint`: check a query file without running it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from omnigraph.cli.addressing import Place, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.engine.files.source_files import read_source
from omnigraph.errors import ParseError
from omnigraph.lang.query.lint import Finding, LintReport, QueryResult, report_unparsed
from omnigraph.lang.query.lint import lint as lint_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog

app = new_app()


@app.command()
def lint(
    query: Annotated[Path, typer.Option("--query", "-q", help="The query file.", metavar="FILE.gq")],
    place: Place = None,
    schema: Annotated[
        Path | None,
        typer.Option("--schema", "-s", help="A schema file instead of a graph.", metavar="FILE.pg"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every query of a file against a schema file or a graph; exits with 1 when one is wrong."""
    catalog, origin = _load_schema(schema, place)
    report = _lint_file(query, catalog)
    body = report.to_json(origin, str(query))
    print_result(body, "\n".join(_render_lines(report)), as_json=as_json)
    if report.status == "error":
        raise typer.Exit(1)


def _lint_file(query: Path, catalog: Catalog) -> LintReport:
    try:
        source = read_source(query)
    except ParseError as error:
        # Text that no parser can begin with, such as bytes that are not UTF-8.
        return report_unparsed(error)
    return lint_queries(source, catalog)


def _load_schema(schema: Path | None, place: str | None) -> tuple[Catalog, dict[str, str]]:
    """The schema to check against, and where it comes from."""
    named = resolve_graph(place=place, schema=None if schema is None else str(schema))
    if schema is not None:
        return compile_schema(read_source(schema)), {"kind": "file", "path": str(schema)}
    from omnigraph import graph  # not above: checking against a file needs no storage

    with graph.open(named, read_only=True) as opened:
        return opened.schema, {"kind": "graph", "uri": opened.uri}


def _render_lines(report: LintReport) -> Iterator[str]:
    mistakes = [diagnostic for finding in report.findings for diagnostic in finding.diagnostics]
    if mistakes:
        yield "\n\n".join(diagnostic.render() for diagnostic in mistakes)
        yield f"\nthe file does not parse: {_format_count(len(mistakes), 'error')}"
        return
    for result in report.results:
        yield from _result_lines(result)
    yield from (_finding_line(finding) for finding in report.findings)
    counts = (("error", report.errors), ("warning", report.warnings))
    found = ", ".join(_format_count(count, word) for word, count in counts)
    yield f"{_format_count(len(report.results), 'query', 'queries')} checked: {found}"


def _result_lines(result: QueryResult) -> Iterator[str]:
    yield f"{'error' if result.error else 'ok':5} {result.kind} {result.name}"
    for warning in result.warnings:
        yield f"      warning: {warning}"
    if result.error is not None:
        yield f"\n{result.error.render()}\n"


def _finding_line(finding: Finding) -> str:
    where = f" (in {', '.join(finding.query_names)})" if finding.query_names else ""
    return f"{finding.severity}[{finding.code}]: {finding.message}{where}"


def _format_count(count: int, word: str, plural: str | None = None) -> str:
    return f"{count} {word if count == 1 else plural or f'{word}s'}"
