"""The registry of stored queries: texts that were parsed and checked when the server started."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest, CompileError
from omnigraph.graph import Graph
from omnigraph.lang.query import ast
from omnigraph.lang.query.compile import compile_parsed, describe_value
from omnigraph.lang.query.lint import lint, lint_parsed
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source
from omnigraph.server.sources import QueryText
from omnigraph.server.wire.stored_queries import QueryParameterOutput, StoredQueryOutput

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query by name, and the text it is in."""

    name: str
    source: Source
    query: ast.Query

    @property
    def is_mutation(self) -> bool:
        """Whether it writes."""
        return self.query.is_mutation

    @property
    def text(self) -> str:
        """The whole text; the name selects the query in it."""
        return self.source.text

    def check(self, catalog: Catalog) -> None:
        """Raise `CompileError` when the query does not fit a schema."""
        compile_parsed(self.query, catalog, self.source)

    def describe(self) -> StoredQueryOutput:
        """Return what a caller must know to invoke it."""
        return StoredQueryOutput(
            name=self.name,
            tool_name=self.name,
            mutation=self.is_mutation,
            params=[_describe_parameter(one) for one in self.query.parameters],
            description=self.query.description,
            instruction=self.query.instruction,
        )


StoredQueries = Mapping[str, StoredQuery]


def load_stored_queries(texts: Iterable[QueryText], graph: Graph) -> StoredQueries:
    """Return the queries of texts, checked against the schema of a graph."""
    parsed = [_parse(text) for text in texts]
    found = _choose(parsed)
    if not found:
        return found
    catalog = graph.schema
    for _, source, file in parsed:
        report = lint_parsed(file, source, catalog)  # which compiles each query once
        for result in report.results:
            if result.error is not None and result.name in found:
                raise _misfit(found[result.name], result.error)
        warnings = [warning for result in report.results for warning in result.warnings]
        for warning in (*(finding.message for finding in report.findings), *warnings):
            _log.warning("stored queries of '%s': %s", source.name, warning)
    return found


def parse_stored_queries(texts: Iterable[QueryText]) -> StoredQueries:
    """Return the queries of texts by name; a name that is there twice is an error."""
    return _choose(_parse(text) for text in texts)


_Parsed = tuple[QueryText, Source, ast.QueryFile]


def _parse(text: QueryText) -> _Parsed:
    source = Source(text.text, text.name)
    return text, source, parse_queries(source)


def _choose(parsed: Iterable[_Parsed]) -> StoredQueries:
    found: dict[str, StoredQuery] = {}
    for text, source, file in parsed:
        for query in file.queries:
            if text.chosen is not None and query.name not in text.chosen:
                continue
            if query.name in found:
                other = found[query.name].source.name
                raise BadRequest(
                    f"stored query '{query.name}' is in '{other}' and in '{source.name}'",
                    remedy="rename one of them",
                )
            found[query.name] = StoredQuery(query.name, source, query)
    return found


def check_stored_queries(queries: StoredQueries, catalog: Catalog) -> None:
    """Raise `BadRequest` when a query does not fit a schema."""
    for query in queries.values():
        try:
            query.check(catalog)
        except CompileError as error:
            raise _misfit(query, error) from error


def _misfit(query: StoredQuery, error: CompileError) -> BadRequest:
    where = f"stored query '{query.name}' of '{query.source.name}'"
    return BadRequest(
        f"{where} does not fit the schema: {error.message}", remedy="change the query, or do not serve it"
    )


def list_warnings(queries: StoredQueries, catalog: Catalog) -> Iterator[tuple[str, str]]:
    """Yield what is odd about queries that fit a schema, by name."""
    for source in {query.source.name: query.source for query in queries.values()}.values():
        for result in lint(source, catalog).results:
            if result.name in queries:
                yield from ((result.name, warning) for warning in result.warnings)


def _describe_parameter(parameter: ast.Parameter) -> QueryParameterOutput:
    shown = describe_value(parameter.name, parameter.type, parameter.type.nullable)
    return QueryParameterOutput(
        name=shown.name,
        kind=shown.kind,
        nullable=shown.nullable,
        item_kind=shown.item_kind,
        vector_dim=shown.vector_dim,
    )
