"""The registry of stored queries: `.gq` files that were read and checked when the server started."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.files.source_files import read_source
from omnigraph.errors import BadRequest, CompileError
from omnigraph.graph import Graph
from omnigraph.lang.query import ast
from omnigraph.lang.query.compile import compile_parsed, describe_value
from omnigraph.lang.query.lint import lint
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source
from omnigraph.server.wire.stored_queries import QueryParameterOutput, StoredQueryOutput

ENDING = ".gq"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A query by name, and the file it was read from."""

    name: str
    source: Source
    query: ast.Query

    @property
    def is_mutation(self) -> bool:
        """Whether it writes."""
        return self.query.is_mutation

    @property
    def text(self) -> str:
        """The text of the file; the name selects the query in it."""
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


def load_stored_queries(paths: Sequence[Path], graph: Graph) -> StoredQueries:
    """Return the queries of files and folders, checked against the schema of a graph."""
    found = read_stored_queries(paths)
    check_stored_queries(found, graph.schema)
    for source in {query.source.name: query.source for query in found.values()}.values():
        for warning in _warnings(source, graph.schema):
            _log.warning("stored queries of '%s': %s", source.name, warning)
    return found


def read_stored_queries(paths: Iterable[Path]) -> StoredQueries:
    """Return the queries of files and folders by name; a name that is there twice is an error."""
    found: dict[str, StoredQuery] = {}
    for path in list_files(paths):
        source = read_source(path)
        for query in parse_queries(source).queries:
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
            where = f"stored query '{query.name}' of '{query.source.name}'"
            raise BadRequest(
                f"{where} does not fit the schema: {error.message}",
                remedy="change the query, or take it out of --queries",
            ) from error


def list_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that paths name: a file itself, and the queries in a folder."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(path.glob(f"*{ENDING}"))
        if not inside:
            raise BadRequest(f"folder '{path}' has no {ENDING} files", remedy="check --queries")
        yield from inside


def _warnings(source: Source, catalog: Catalog) -> Iterator[str]:
    report = lint(source, catalog)
    yield from (finding.message for finding in report.findings)
    yield from (warning for result in report.results for warning in result.warnings)


def _describe_parameter(parameter: ast.Parameter) -> QueryParameterOutput:
    shown = describe_value(parameter.name, parameter.type, parameter.type.nullable)
    return QueryParameterOutput(
        name=shown.name,
        kind=shown.kind,
        nullable=shown.nullable,
        item_kind=shown.item_kind,
        vector_dim=shown.vector_dim,
    )
