"""A scripted session of an editor with `omnigraph lsp`, over its standard input and output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

SCHEMA = """\
node Person @description("Somebody") {
  name: String @key
  age: I32?
}
edge Knows: Person -> Person { since: I32? }
"""
QUERIES = """\
query friends($name: String) {
  match { $p: Person { name: $name }  $p knows $q  $q.agee > 3 }
  return { $q.name }
}
"""


class Editor:
    """An editor with files open."""

    def __init__(self, client: LanguageClient) -> None:
        self.client = client
        self.reports: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()
        self._texts: dict[str, str] = {}

        def take(params: lsp.PublishDiagnosticsParams) -> None:
            self.reports.put_nowait(params)

        client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(take)

    async def open(self, path: Path) -> list[lsp.Diagnostic]:
        uri, text = path.as_uri(), path.read_text()
        self._texts[uri] = text
        item = lsp.TextDocumentItem(uri, path.suffix[1:], 1, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        return await self.report(uri)

    async def write(self, path: Path, text: str) -> list[lsp.Diagnostic]:
        uri = path.as_uri()
        self._texts[uri] = text
        change = lsp.TextDocumentContentChangeWholeDocument(text)
        document = lsp.VersionedTextDocumentIdentifier(2, uri)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))
        return await self.report(uri)

    async def report(self, uri: str) -> list[lsp.Diagnostic]:
        while True:
            found = await self.reports.get()
            if found.uri == uri:
                return list(found.diagnostics)

    def at(self, path: Path, marked: str) -> dict[str, Any]:
        """Return the place of `|` in a piece of the text."""
        text, offset = self._texts[path.as_uri()], marked.index("|")
        start = text.index(marked.replace("|", "")) + offset
        line = text.count("\n", 0, start)
        column = len(text[text.rfind("\n", 0, start) + 1 : start].encode("utf-16-le")) // 2
        return {
            "text_document": lsp.TextDocumentIdentifier(path.as_uri()),
            "position": lsp.Position(line, column),
        }

    async def labels(self, path: Path, marked: str) -> list[str]:
        found = await self.client.text_document_completion_async(
            lsp.CompletionParams(**self.at(path, marked))
        )
        assert isinstance(found, list)
        return [item.label for item in found]

    async def hover(self, path: Path, marked: str) -> str | None:
        found = await self.client.text_document_hover_async(lsp.HoverParams(**self.at(path, marked)))
        if found is None:
            return None
        assert isinstance(found.contents, lsp.MarkupContent)
        return found.contents.value

    async def definition(self, path: Path, marked: str) -> tuple[str, int, int] | None:
        found = await self.client.text_document_definition_async(
            lsp.DefinitionParams(**self.at(path, marked))
        )
        if found is None:
            return None
        assert isinstance(found, lsp.Location)
        return Path(found.uri).name, found.range.start.line, found.range.start.character


def edit(session: Callable[[Editor], Awaitable[None]], *options: str) -> None:
    async def run() -> None:
        client = LanguageClient("test", "1")
        editor = Editor(client)
        await client.start_io(sys.executable, "-m", "omnigraph", "lsp", *options)
        await client.initialize_async(lsp.InitializeParams(lsp.ClientCapabilities()))
        client.initialized(lsp.InitializedParams())
        try:
            await asyncio.wait_for(session(editor), 60)
        finally:
            await client.shutdown_async(None)
            client.exit(None)
            await client.stop()  # type: ignore[no-untyped-call]

    asyncio.run(run())


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "queries").mkdir()
    schema, queries = tmp_path / "schema.pg", tmp_path / "queries" / "people.gq"
    schema.write_text(SCHEMA)
    queries.write_text(QUERIES)
    return schema, queries


def test_an_editor_gets_mistakes_hover_completion_and_definitions(files: tuple[Path, Path]) -> None:
    schema, queries = files

    async def session(editor: Editor) -> None:
        [mistake] = await editor.open(queries)
        assert mistake.message.startswith("type `Person` has no property `agee`")
        assert (mistake.code, mistake.severity) == ("T6", lsp.DiagnosticSeverity.Error)
        assert (mistake.range.start.line, mistake.range.start.character) == (1, 51)
        assert await editor.write(queries, QUERIES.replace("agee", "age")) == []

        assert await editor.open(schema) == []
        [wrong] = await editor.write(schema, SCHEMA.replace("I32? }", "Int }"))
        assert wrong.range.start.line == 4
        # The query file is checked with the schema as the editor shows it: now only by the grammar.
        assert await editor.report(queries.as_uri()) == []
        assert await editor.write(schema, SCHEMA.replace("age:", "years:")) == []
        [renamed] = await editor.report(queries.as_uri())
        assert "has no property `age`" in renamed.message
        assert await editor.write(schema, SCHEMA) == []
        assert await editor.report(queries.as_uri()) == []

        assert await editor.labels(queries, "$q.|age") == ["name", "age"]
        assert await editor.labels(queries, "$p: Per|son") == ["Person"]
        assert "knows" in await editor.labels(queries, "$p kn|ows")
        assert "$name" in await editor.labels(queries, "name: $|name")
        assert "key" in await editor.labels(schema, "@|key")
        assert "I32" in await editor.labels(schema, "age: I|32")

        assert await editor.definition(queries, "$p: Per|son") == ("schema.pg", 0, 5)
        assert await editor.definition(queries, "$q.ag|e") == ("schema.pg", 2, 2)
        assert await editor.definition(queries, "kno|ws") == ("schema.pg", 4, 5)
        assert await editor.definition(queries, "$q.na|me") == ("schema.pg", 1, 2)
        assert await editor.definition(queries, "{ $q|.name }") == ("people.gq", 1, 47)
        assert await editor.definition(schema, "Person -> Per|son") == ("schema.pg", 0, 5)
        assert await editor.definition(queries, "retu|rn") is None

        assert "name: String @key" in str(await editor.hover(queries, "$p: Per|son"))
        assert "Somebody" in str(await editor.hover(queries, "$p: Per|son"))
        assert "Person.age: I32?" in str(await editor.hover(queries, "$q.ag|e"))
        assert "$name: String (parameter)" in str(await editor.hover(queries, "name: $na|me"))
        assert "edge Knows: Person -> Person" in str(await editor.hover(queries, "kno|ws"))
        assert "@key: identifies a node" in str(await editor.hover(schema, "@k|ey"))

    edit(session)


def test_texts_that_no_parser_begins_with_are_reported_and_end_nothing(tmp_path: Path) -> None:
    named = tmp_path / "other.pg"
    named.write_text("node Thing { id_: String @key }")
    queries = tmp_path / "q.gq"
    queries.write_text("query q() {\n  match { $t: Thing  $t.")

    async def session(editor: Editor) -> None:
        assert await editor.open(queries)
        assert await editor.labels(queries, "$t.|") == ["id_"]
        assert await editor.write(queries, "query \0")
        assert await editor.labels(queries, "query |") == []
        emoji = '// 🙂🙂\nquery q() { match { $t: Thing { id_: "🙂" } $t.none > 1 } return { $t } }'
        [mistake] = await editor.write(queries, emoji)
        assert mistake.range.start == lsp.Position(1, 44)

    edit(session, "--schema", str(named))
