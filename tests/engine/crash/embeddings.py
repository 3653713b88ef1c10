"""Runs for the crash matrix that fill vectors: missing ones, and those whose text is another now."""

from __future__ import annotations

from unittest.mock import patch

from omnigraph import failpoints
from omnigraph.embed.settings import EmbedSettings
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.embedding import embed_job as job
from omnigraph.engine.embedding.fill import EmbedRequest, fill_vectors
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.source import Source
from tests.engine.crash.steps import BRANCH, Step, Write, left_at, recovery
from tests.engine.crash.world import ACTOR, SCHEMA, change

WITH_TEXTS = f"{SCHEMA}\nnode Doc {{ name: String @key  body: String?  about: Vector(4)? @embed(body) }}"


def _fills(branch: str = "main") -> Step:
    def step(graph: OpenGraph) -> object:
        # Tasks reach the graph by themselves. Here they do so in a way that is observed.
        with patch.object(job, "shared_root", lambda *_: graph.root):
            return fill_vectors(graph, Author(branch, ACTOR), EmbedRequest(), EmbedSettings.choose("mock"))

    return step


def _with_texts(graph: OpenGraph) -> None:
    """Texts without vectors, and one without a text."""
    apply_schema(graph, SchemaRequest(Source(WITH_TEXTS)))
    change(graph, 'insert Doc { name: "a", body: "x" }  insert Doc { name: "b", body: "y" }')
    change(graph, 'insert Doc { name: "c" }')


def _outdate_vectors(graph: OpenGraph) -> None:
    """The same, filled, and one text is another now and one is gone."""
    _with_texts(graph)
    _fills()(graph)
    change(graph, 'update Doc set { body: "z" } where name = "a"')
    change(graph, 'update Doc set { body: null } where name = "b"')


def _outdated_on_a_branch(graph: OpenGraph) -> None:
    _with_texts(graph)
    _fills()(graph)
    create_branch(graph, BRANCH)
    change(graph, 'insert Doc { name: "d", body: "w" }', BRANCH)


def _branch_off(graph: OpenGraph) -> None:
    """Texts that a branch inherits and main did not fill."""
    _with_texts(graph)
    create_branch(graph, BRANCH)


CONFIRMED = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER

EMBEDDINGS: dict[str, Write] = {
    "embed": Write(_fills(), _with_texts, again=True),
    "embed-outdated": Write(_fills(), _outdate_vectors, again=True),
    "embed-branch": Write(_fills(BRANCH), _outdated_on_a_branch, BRANCH, again=True),
    "embed-first-touch": Write(_fills(BRANCH), _branch_off, BRANCH, again=True),
    "recover-embed": Write(recovery, left_at(CONFIRMED, _fills(), _with_texts), recovers=True),
}
