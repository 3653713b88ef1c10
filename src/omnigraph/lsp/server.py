"""The requests of an editor, answered by the checkers and by `lang/assist`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from omnigraph import __version__
from omnigraph.errors import CompileError
from omnigraph.lang.assist import query_assist, schema_assist
from omnigraph.lang.assist.reading import Description, Item, SchemaPlace
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source, Span
from omnigraph.lsp.findings import Found, check_query_text, check_schema_text
from omnigraph.lsp.schemas import ENDING, Schema, find_schema

Answer = TypeVar("Answer")

_SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error,
    "warning": lsp.DiagnosticSeverity.Warning,
    "info": lsp.DiagnosticSeverity.Information,
}
_KINDS = {
    "type": lsp.CompletionItemKind.Class,
    "property": lsp.CompletionItemKind.Field,
    "edge": lsp.CompletionItemKind.Reference,
    "variable": lsp.CompletionItemKind.Variable,
    "keyword": lsp.CompletionItemKind.Keyword,
    "function": lsp.CompletionItemKind.Function,
}


class GraphLanguageServer(LanguageServer):
    """A server for the files of one editor."""

    def __init__(self, schema: Path | None = None) -> None:
        super().__init__("omnigraph", __version__)
        self.named_schema = schema
        self._shown: set[str] = set()

    def check(self, document: TextDocument) -> None:
        """Show what is wrong in a file; a change of a schema also checks the queries that are open."""
        self._shown.add(document.uri)
        self._publish(document)
        if is_schema(document):
            for uri in self._shown - {document.uri}:
                other = self.workspace.get_text_document(uri)
                if not is_schema(other):
                    self._publish(other)

    def forget(self, uri: str) -> None:
        """Show nothing more about a file that was closed."""
        self._shown.discard(uri)
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))

    def schema_of(self, document: TextDocument) -> Schema | None:
        """Return the schema that a query file belongs to."""
        return find_schema(path_of(document.uri), self.named_schema, self._read)

    def _publish(self, document: TextDocument) -> None:
        if is_schema(document):
            found = check_schema_text(document.source)
        else:
            schema = self.schema_of(document)
            found = check_query_text(document.source, None if schema is None else schema.catalog)
        shown = [_diagnostic(document, one) for one in found]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(document.uri, shown))

    def _read(self, path: Path) -> str | None:
        """Return a file as the editor shows it, or as it is on disk."""
        uri = path.as_uri()
        if uri in self._shown:
            return self.workspace.get_text_document(uri).source
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None


def build_server(schema: Path | None = None) -> GraphLanguageServer:
    """Return a server with all features."""
    server = GraphLanguageServer(schema)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        server.check(server.workspace.get_text_document(params.text_document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        server.check(server.workspace.get_text_document(params.text_document.uri))

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)

    @server.feature(
        lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["$", ".", ":", "@", " "])
    )
    def complete(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        found = _ask(server, params, _complete_query, schema_assist.complete_schema)
        return [_completion(item) for item in found or ()]

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        found = _ask(server, params, _describe_query, _describe_schema)
        if found is None:
            return None
        document = server.workspace.get_text_document(params.text_document.uri)
        text = lsp.MarkupContent(lsp.MarkupKind.Markdown, f"```\n{found.text}\n```")
        return lsp.Hover(text, _range(document, found.at))

    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        return _ask(server, params, *_definition_finders(server, params))

    return server


def _ask(
    server: GraphLanguageServer,
    params: lsp.CompletionParams | lsp.HoverParams | lsp.DefinitionParams,
    about_query: Callable[[Source, int, Schema], Answer],
    about_schema: Callable[[Source, int], Answer],
) -> Answer | None:
    """Ask about a place of a file; a text that no parser can begin with has no answers."""
    document = server.workspace.get_text_document(params.text_document.uri)
    try:
        source = Source(document.source)
    except CompileError:
        return None
    offset = document.offset_at_position(params.position)
    if is_schema(document):
        return about_schema(source, offset)
    schema = server.schema_of(document)
    return None if schema is None else about_query(source, offset, schema)


def _complete_query(source: Source, offset: int, schema: Schema) -> list[Item]:
    return query_assist.complete_query(source, offset, schema.catalog)


def _describe_query(source: Source, offset: int, schema: Schema) -> Description | None:
    return query_assist.describe_query_word(source, offset, schema.catalog)


def _describe_schema(source: Source, offset: int) -> Description | None:
    try:
        return schema_assist.describe_schema_word(source, offset, compile_schema(source))
    except CompileError:
        return None


def _definition_finders(
    server: GraphLanguageServer, params: lsp.DefinitionParams
) -> tuple[
    Callable[[Source, int, Schema], lsp.Location | None], Callable[[Source, int], lsp.Location | None]
]:
    """Return what finds a definition from a query, and from a schema."""
    document = server.workspace.get_text_document(params.text_document.uri)

    def here(span: Span | None) -> lsp.Location | None:
        return None if span is None else lsp.Location(document.uri, _range(document, span))

    def from_query(source: Source, offset: int, schema: Schema) -> lsp.Location | None:
        found = query_assist.find_query_definition(source, offset, schema.catalog)
        if not isinstance(found, SchemaPlace):
            return here(found)
        span = schema_assist.locate(schema.source, found)
        if span is None:
            return None
        uri = schema.path.as_uri()
        return lsp.Location(uri, _range(server.workspace.get_text_document(uri), span))

    def from_schema(source: Source, offset: int) -> lsp.Location | None:
        return here(schema_assist.find_schema_definition(source, offset))

    return from_query, from_schema


def _range(document: TextDocument, span: Span) -> lsp.Range:
    return lsp.Range(
        document.client_position_at_offset(span.start), document.client_position_at_offset(span.end)
    )


def _diagnostic(document: TextDocument, found: Found) -> lsp.Diagnostic:
    lines = document.source.split("\n")
    start = sum(len(line) + 1 for line in lines[: found.line]) + found.column
    place = Span(start, min(start + found.width, len(document.source)))
    return lsp.Diagnostic(
        _range(document, place),
        found.message,
        severity=_SEVERITIES[found.severity],
        code=found.code,
        source="omnigraph",
    )


def _completion(item: Item) -> lsp.CompletionItem:
    return lsp.CompletionItem(item.label, kind=_KINDS[item.kind], detail=item.detail or None)


def is_schema(document: TextDocument) -> bool:
    """Whether a file is a schema; every other one is a file of queries."""
    return document.uri.endswith(ENDING)


def path_of(uri: str) -> Path:
    """Return the path of a file."""
    return Path(unquote(urlsplit(uri).path))
