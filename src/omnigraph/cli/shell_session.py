"""A session of `omnigraph shell`: the graph, the branch, parameters and settings, and what an input does."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from typing import TYPE_CHECKING, Any

from omnigraph.cli.output import print_note, print_text
from omnigraph.cli.result_output import Format, write_result
from omnigraph.display.text import format_count
from omnigraph.errors import BadRequest
from omnigraph.lang.assist.reading import read_tokens
from omnigraph.lang.query.ast import Query
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.source import Source
from omnigraph.lang.tokens import BAD

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.graph import Graph

UNNAMED = "shell"
"""The name of a query that was written without one."""
_BARE = ("match", "insert", "update", "delete")


class Session:
    """What stays the same from one input to the next, until a command changes it."""

    def __init__(self, graph: Graph | RemoteGraph, uri: str, branch: str, actor: str | None) -> None:
        self.graph = graph
        self.uri = uri
        self.branch = branch
        self.actor = actor
        self.moment: dict[str, Any] = {}
        """`commit` or `time`, where the session looks at the past."""
        self.params: dict[str, Any] = {}
        self.format = Format.TABLE
        self.timing = True
        self.explains = False
        self.page: Callable[[str], None] = print_text
        """Shows a result."""

    @property
    def prompt(self) -> str:
        """What stands before an input: the branch, or the moment."""
        return f"{next(iter(self.moment.values()), self.branch)}> "

    def run_queries(self, text: str) -> None:
        """Run the queries of a text, one after the other."""
        for query, source in _read_queries(text.strip()):
            self._run_query(query, source)

    def _run_query(self, query: Query, source: str) -> None:
        begun = time.perf_counter()
        params = {one.name: self.params[one.name] for one in query.parameters if one.name in self.params}
        if query.is_mutation:
            self._mutate(query, source, params)
        elif self.explains:
            found = self.graph.explain(source, params, name=query.name, **self.where())
            self.page(found.text())
        else:
            result = self.graph.query(source, params, name=query.name, **self.where())
            self.page(_render(lambda: write_result(result, self.format)))
        if self.timing:
            print_note(f"Time: {(time.perf_counter() - begun) * 1000:.1f} ms")

    def _mutate(self, query: Query, source: str, params: dict[str, Any]) -> None:
        if self.moment:
            raise BadRequest("the past cannot be changed", remedy=r"go back to the present with \at")
        done = self.graph.mutate(source, params, name=query.name, branch=self.branch, actor=self.actor)
        nodes, edges = (
            format_count(done.affected_nodes, "node"),
            format_count(done.affected_edges, "edge"),
        )
        commit = "nothing to commit" if done.commit is None else f"commit {done.commit.id}"
        print_text(f"{nodes}, {edges} affected; {commit}")

    def where(self) -> dict[str, Any]:
        """Return the moment that reads are about, as arguments."""
        return dict(self.moment) if "commit" in self.moment else {"branch": self.branch, **self.moment}


def is_complete(text: str) -> bool:
    """Whether an input is ready to run: a command, a query whose braces are closed, or a `;` at the end."""
    written = text.strip()
    if not written or written.startswith("\\"):
        return True
    tokens = read_tokens(Source(written.removesuffix(";")))
    if any(token.kind == BAD and token.text[0] in '"/' for token in tokens):
        return False
    depth = sum({"{": 1, "}": -1}.get(token.kind, 0) for token in tokens)
    is_named = bool(tokens) and tokens[0].text == "query"
    return depth <= 0 and (
        written.endswith(";") or text.endswith("\n\n") or (is_named and tokens[-1].kind == "}")
    )


def _read_queries(text: str) -> list[tuple[Query, str]]:
    """Return the queries of an input, each with its text; one without a name gets one."""
    body = text.removesuffix(";").rstrip()
    if body.split(maxsplit=1)[0].rstrip("{") in _BARE:
        body = f"query {UNNAMED}() {{\n{body}\n}}"
    return [(query, body) for query in parse_queries(Source(body)).queries]


def _render(write: Callable[[], None]) -> str:
    """Return what a function writes to standard output."""
    sink = BytesIO()
    with redirect_stdout(TextIOWrapper(sink, encoding="utf-8", write_through=True)):
        write()
        return sink.getvalue().decode()
