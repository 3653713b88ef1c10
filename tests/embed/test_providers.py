"""The text of `nearest`: by the right model, at the right dimension, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import omnigraph as og
from omnigraph.embed.mock import MockEmbedder
from omnigraph.embed.providers import EmbeddedProperty, embed_query, open_embedder
from omnigraph.embed.settings import PROVIDER_SETTING, PROVIDERS, EmbedSettings
from omnigraph.errors import EmbeddingModelMismatch, EmbeddingNotConfigured
from omnigraph.lang.schema import compile_schema
from tests.embed.provider_server import ProviderServer

SCHEMA = """
node Doc {
    slug: String @key
    body: String
    plain: Vector(5)?
    sourced: Vector(6)? @embed(body)
    recorded: Vector(7)? @embed(body, model="small-1")
}
"""


def target(name: str) -> EmbeddedProperty:
    return EmbeddedProperty.of("Doc", compile_schema(SCHEMA).nodes["Doc"].properties[name])


@pytest.mark.parametrize(("name", "dimension"), [("plain", 5), ("sourced", 6), ("recorded", 7)])
def test_a_text_is_embedded_at_the_dimension_of_the_property(name: str, dimension: int) -> None:
    embedder = MockEmbedder("small-1")
    vector = embed_query(embedder, "a question", target(name))
    assert np.array_equal(vector, embedder.embed(["a question"], dimension, "document")[0])


@pytest.mark.parametrize("name", ["plain", "sourced"])
def test_without_a_recorded_model_any_model_will_do(name: str) -> None:
    assert embed_query(MockEmbedder("whatever"), "a question", target(name)).shape == (
        target(name).dimension,
    )


def test_another_model_than_the_recorded_one_is_refused_and_both_are_named(server: ProviderServer) -> None:
    embedder = open_embedder(EmbedSettings.choose("http", model="large-2", base_url=server.url))
    with pytest.raises(EmbeddingModelMismatch) as caught:
        embed_query(embedder, "a question", target("recorded"))
    assert str(caught.value) == (
        "property 'Doc.recorded' holds vectors of model 'small-1',"
        " but the configured embedding model is 'large-2'"
    )
    assert caught.value.data() == {
        "property_path": "Doc.recorded",
        "recorded": "small-1",
        "configured": "large-2",
    }
    assert server.requests == []


def test_without_a_provider_the_error_says_how_to_get_one() -> None:
    with pytest.raises(EmbeddingNotConfigured) as caught:
        embed_query(None, "a question", target("recorded"))
    assert str(caught.value) == (
        "comparing 'Doc.recorded' with a text needs an embedding provider, and none is configured"
    )
    remedy = str(caught.value.remedy)
    assert "OMNIGRAPH_EMBED_PROVIDER" in remedy
    assert all(provider in remedy for provider in PROVIDERS)


def test_a_provider_learns_that_the_text_is_a_query(server: ProviderServer) -> None:
    settings = EmbedSettings.choose("gemini", base_url=server.url, api_key="k")
    embed_query(open_embedder(settings), "dogs", target("plain"))
    (request,) = server.requests[0].body["requests"]
    assert request["content"]["parts"][0]["text"] == "task: search result | query: dogs"


def test_a_provider_that_is_configured_later_is_used_by_a_graph_that_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (PROVIDER_SETTING, "OMNIGRAPH_EMBEDDINGS_MOCK"):
        monkeypatch.delenv(name, raising=False)
    order = 'order { nearest($d.plain, "dogs") } limit 1'
    ask = f"query q() {{ match {{ $d: Doc }} return {{ $d.slug as s }} {order} }}"
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as graph:
        graph.load([{"slug": "a", "body": "b", "plain": [1.0, 0, 0, 0, 0]}], type="Doc", mode="append")
        with pytest.raises(EmbeddingNotConfigured):
            graph.query(ask)
        monkeypatch.setenv(PROVIDER_SETTING, "mock")
        assert graph.query(ask).rows() == [{"s": "a"}]
        monkeypatch.setenv(PROVIDER_SETTING, "nothing like it")
        with pytest.raises(EmbeddingNotConfigured, match="no embedding provider 'nothing like it'"):
            graph.query(ask)
        monkeypatch.delenv(PROVIDER_SETTING)
        with pytest.raises(EmbeddingNotConfigured, match="none is configured"):
            graph.query(ask)
