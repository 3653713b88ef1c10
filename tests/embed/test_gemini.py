"""Gemini's own protocol, over real connections."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph.embed.embedder import Embedder, Kind
from omnigraph.embed.providers import open_embedder
from omnigraph.embed.settings import EmbedSettings
from omnigraph.errors import (
    EmbeddingAnswerRejected,
    EmbeddingDimensionMismatch,
    EmbeddingKeyRejected,
    EmbeddingTextRejected,
)
from tests.embed.provider_server import ProviderServer, Reply, failing

KEY = "AIza-very-secret"


def gemini(server: ProviderServer, model: str | None = None) -> Embedder:
    settings = EmbedSettings.choose("gemini", model=model, base_url=f"{server.url}/v1beta", api_key=KEY)
    return open_embedder(settings)


def test_texts_become_vectors_of_length_one_in_their_order(server: ProviderServer) -> None:
    server.numbers = lambda text, dimension: [3.0, 4.0] if text.endswith("b") else [5.0, 0.0]
    vectors = gemini(server).embed(["b", "a"], 2, "document")
    np.testing.assert_allclose(vectors, [[0.6, 0.8], [1.0, 0.0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("query", "task: search result | query: dogs"), ("document", "title: none | text: dogs")],
)
def test_the_task_is_sent_in_words(server: ProviderServer, kind: Kind, sent: str) -> None:
    gemini(server).embed(["dogs"], 3, kind)
    (request,) = server.requests
    assert request.path == "/v1beta/models/gemini-embedding-2:batchEmbedContents"
    assert request.headers["x-goog-api-key"] == KEY
    assert request.body["requests"] == [
        {
            "model": "models/gemini-embedding-2",
            "content": {"parts": [{"text": sent}]},
            "outputDimensionality": 3,
        }
    ]


@pytest.mark.parametrize(("kind", "task"), [("query", "RETRIEVAL_QUERY"), ("document", "RETRIEVAL_DOCUMENT")])
@pytest.mark.parametrize("model", ["gemini-embedding-001", "models/gemini-embedding-001"])
def test_an_older_model_gets_the_task_by_its_type(
    server: ProviderServer, model: str, kind: Kind, task: str
) -> None:
    gemini(server, model).embed(["dogs"], 3, kind)
    (request,) = server.requests
    assert request.path == "/v1beta/models/gemini-embedding-001:batchEmbedContents"
    assert request.body["requests"] == [
        {
            "model": "models/gemini-embedding-001",
            "content": {"parts": [{"text": "dogs"}]},
            "taskType": task,
            "outputDimensionality": 3,
        }
    ]


def test_a_model_name_cannot_reach_another_address(server: ProviderServer) -> None:
    gemini(server, "../../x?y").embed(["a"], 3, "query")
    assert server.requests[0].path == "/v1beta/models/..%2F..%2Fx%3Fy:batchEmbedContents"


def test_many_texts_are_sent_in_several_requests(server: ProviderServer) -> None:
    assert len(gemini(server).embed(["a"] * 130, 3, "document")) == 130
    assert [len(request.body["requests"]) for request in server.requests] == [100, 30]


def test_a_key_that_is_not_accepted_is_reported_without_showing_it(server: ProviderServer) -> None:
    body = b'{"error": {"code": 400, "message": "not valid", "details": [{"reason": "API_KEY_INVALID"}]}}'
    server.replies.append(Reply(400, body))
    with pytest.raises(EmbeddingKeyRejected) as caught:
        gemini(server).embed(["a"], 3, "query")
    assert KEY not in repr((str(caught.value), caught.value.to_json()))


def test_a_text_that_is_too_long_is_reported_as_such(server: ProviderServer) -> None:
    said = "The input token count (9000) exceeds the maximum number of tokens allowed (8192)."
    server.replies.append(failing(400, said))
    with pytest.raises(EmbeddingTextRejected, match="is too long"):
        gemini(server).embed(["a"], 3, "query")


@pytest.mark.parametrize("body", [b"{}", b'{"embeddings": []}', b'{"embeddings": [{"values": [1, "x"]}]}'])
def test_a_malformed_answer_is_refused(server: ProviderServer, body: bytes) -> None:
    server.replies.append(Reply(body=body))
    with pytest.raises(EmbeddingAnswerRejected):
        gemini(server).embed(["a"], 2, "query")


def test_a_vector_of_another_dimension_is_refused(server: ProviderServer) -> None:
    server.replies.append(Reply(body=b'{"embeddings": [{"values": [1, 2, 3]}]}'))
    with pytest.raises(EmbeddingDimensionMismatch):
        gemini(server).embed(["a"], 2, "query")
