"""OpenAI and compatible endpoints, over real connections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import stamina.instrumentation

from omnigraph.embed.embedder import MAX_BATCH_BYTES, MAX_TEXT_BYTES, Embedder
from omnigraph.embed.endpoint import ATTEMPTS
from omnigraph.embed.providers import open_embedder
from omnigraph.embed.settings import EmbedSettings
from omnigraph.errors import (
    EmbeddingAnswerRejected,
    EmbeddingDimensionMismatch,
    EmbeddingFailed,
    EmbeddingKeyRejected,
    EmbeddingTextRejected,
    EmbeddingUnavailable,
)
from tests.embed.provider_server import ProviderServer, Reply, failing, letters, openai_answer

KEY = "sk-very-secret-0123456789"


def http(server: ProviderServer, *, key: str | None = None, timeout: float = 30.0) -> Embedder:
    settings = EmbedSettings.choose("http", model="m", base_url=server.url, api_key=key, timeout=timeout)
    return open_embedder(settings)


def openai(server: ProviderServer) -> Embedder:
    return open_embedder(EmbedSettings.choose("openai", base_url=f"{server.url}/v1/", api_key=KEY))


def unit(*numbers: float) -> list[float]:
    return list(np.array(numbers) / np.linalg.norm(numbers))


def test_texts_become_vectors_of_length_one_in_their_order(server: ProviderServer) -> None:
    vectors = openai(server).embed(["b", "a"], 4, "query")
    assert [vector.dtype for vector in vectors] == [np.float32, np.float32]
    np.testing.assert_allclose(vectors, [unit(*letters("b", 4)), unit(*letters("a", 4))], rtol=1e-6)


def test_the_request_says_model_dimension_and_key(server: ProviderServer) -> None:
    openai(server).embed(["ü"], 4, "query")
    (request,) = server.requests
    assert request.path == "/v1/embeddings"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": "text-embedding-3-small",
        "input": ["ü"],
        "dimensions": 4,
        "encoding_format": "float",
    }


def test_an_endpoint_without_a_key_is_asked_without_one(server: ProviderServer) -> None:
    http(server).embed(["a"], 3, "query")
    assert "authorization" not in server.requests[0].headers


def test_many_texts_are_sent_in_several_requests_over_one_connection(server: ProviderServer) -> None:
    texts = [chr(0x4E00 + at) for at in range(70)]
    vectors = http(server).embed(texts, 3, "document")
    assert [len(request.body["input"]) for request in server.requests] == [32, 32, 6]
    assert len({request.client for request in server.requests}) == 1
    np.testing.assert_allclose(vectors, [unit(*letters(text, 3)) for text in texts], rtol=1e-6)


def test_long_texts_are_sent_in_smaller_groups(server: ProviderServer) -> None:
    half = "x" * (MAX_BATCH_BYTES // 2)
    http(server).embed([half, half, half, "y"], 3, "document")
    assert [[text[0] for text in request.body["input"]] for request in server.requests] == [
        ["x", "x"],
        ["x", "y"],
    ]


def test_no_texts_send_no_request(server: ProviderServer) -> None:
    assert http(server).embed([], 3, "document") == []
    assert server.requests == []


def test_vectors_are_matched_to_texts_by_the_number_they_carry(server: ProviderServer) -> None:
    items = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]
    server.replies.append(Reply(body=json.dumps({"data": items}).encode()))
    assert np.array_equal(http(server).embed(["a", "b"], 2, "query"), [[1, 0], [0, 1]])


def test_an_answer_without_numbers_is_in_the_order_of_the_texts(server: ProviderServer) -> None:
    server.replies.append(Reply(body=b'{"data": [{"embedding": [1, 0]}, {"embedding": [0, 1]}]}'))
    assert np.array_equal(http(server).embed(["a", "b"], 2, "query"), [[1, 0], [0, 1]])


def test_a_chunked_answer_is_read(server: ProviderServer) -> None:
    server.replies.append(Reply(body=openai_answer([[3, 4]]), chunked=True))
    np.testing.assert_allclose(http(server).embed(["a"], 2, "query"), [[0.6, 0.8]], rtol=1e-6)


def test_vectors_of_extreme_size_keep_their_direction(server: ProviderServer) -> None:
    server.replies.append(Reply(body=openai_answer([[3e300, 4e300], [3e-300, 4e-300]])))
    np.testing.assert_allclose(http(server).embed(["a", "b"], 2, "query"), [[0.6, 0.8]] * 2, rtol=1e-6)


# --- trying again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_failure_that_may_pass_is_tried_again(server: ProviderServer, status: int) -> None:
    server.replies += [failing(status), failing(status)]
    assert len(http(server).embed(["a"], 3, "query")) == 1
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [429, 500])
def test_a_failure_that_stays_is_reported_after_a_few_attempts(server: ProviderServer, status: int) -> None:
    server.replies += [failing(status, "come back later")] * 100
    with pytest.raises(EmbeddingUnavailable, match=f"answered {status}: come back later") as caught:
        http(server).embed(["a"], 3, "query")
    assert caught.value.retryable
    assert caught.value.answered == status
    assert len(server.requests) == ATTEMPTS


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413])
def test_a_refusal_is_not_tried_again(server: ProviderServer, status: int) -> None:
    server.replies += [failing(status, location=f"{server.url}/elsewhere")]
    with pytest.raises((EmbeddingFailed, EmbeddingTextRejected)):
        openai(server).embed(["a"], 3, "query")
    assert len(server.requests) == 1


def test_the_pause_a_service_asks_for_is_kept(server: ProviderServer) -> None:
    pauses: list[float] = []
    stamina.instrumentation.set_on_retry_hooks([lambda details: pauses.append(details.wait_for)])
    try:
        with stamina.set_testing(False):
            server.replies.append(failing(429, retry_after="0"))
            http(server).embed(["a"], 3, "query")
    finally:
        stamina.instrumentation.set_on_retry_hooks(None)
    assert pauses == [0.0]


def test_a_service_that_asks_for_a_long_pause_is_not_asked_again(server: ProviderServer) -> None:
    server.replies.append(failing(429, "quota", retry_after="3600"))
    with pytest.raises(EmbeddingUnavailable, match="quota"):
        http(server).embed(["a"], 3, "query")
    assert len(server.requests) == 1


def test_a_service_that_does_not_answer_in_time_is_tried_again(server: ProviderServer) -> None:
    server.replies.append(Reply(hangs=True))
    assert len(http(server, timeout=1.0).embed(["a"], 3, "query")) == 1
    assert server.saw(2)


@pytest.mark.parametrize(
    "reply",
    [Reply(hangs=True), Reply(body=openai_answer([[1, 2, 3]]), trickles=True)],
    ids=["silence", "trickle"],
)
def test_a_service_that_takes_too_long_is_given_up(server: ProviderServer, reply: Reply) -> None:
    server.replies += [reply] * 100
    with pytest.raises(EmbeddingUnavailable, match=r"no complete answer within 0\.1 seconds"):
        http(server, timeout=0.1).embed(["a"], 3, "query")
    assert server.saw(ATTEMPTS)


def test_an_address_without_a_listener_is_unreachable() -> None:
    with ProviderServer() as gone:
        pass
    with pytest.raises(EmbeddingUnavailable, match=rf"{gone.url} cannot be reached: Connection refused"):
        http(gone).embed(["a"], 3, "query")


def test_a_connection_that_breaks_is_reported(server: ProviderServer) -> None:
    server.replies.append(Reply(drops=True))
    with pytest.raises(EmbeddingUnavailable, match="cannot be reached"):
        http(server).embed(["a"], 3, "query")
    assert len(server.requests) == 1


# --- answers that cannot be used ------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>welcome</html>",
        b'{"data": ',
        b"[]",
        b"null",
        b'{"data": null}',
        b'{"data": [{"embedding": null}]}',
        b'{"data": [{"embedding": "AACAPw=="}]}',
        b'{"data": [{"embedding": [1, "2"]}]}',
        b'{"data": [{"embedding": [1, null]}]}',
        b'{"data": [{"embedding": [1, NaN]}]}',
        b'{"data": [{"embedding": [1, Infinity]}]}',
        b'{"data": [{"embedding": [1, 1e999]}]}',
        b'{"data": [{"embedding": [0, 0]}]}',
        b'{"data": [{"embedding": [1, 2], "index": 1}]}',
        b'{"data": [{"embedding": [1, 2]}, {"embedding": [1, 2]}]}',
        b'{"data": [{"embedding": [1, 2], "index": 0}, {"embedding": [1, 2], "index": 0}]}',
        b'{"data": [{"embedding": [1, 2], "index": 0}, {"embedding": [1, 2]}]}',
        b'{"data": []}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
    ],
    ids=lambda body: body[:40].decode(errors="replace"),
)
def test_a_malformed_answer_is_refused(server: ProviderServer, body: bytes) -> None:
    server.replies.append(Reply(body=body))
    with pytest.raises(EmbeddingAnswerRejected) as caught:
        http(server).embed(["a"], 2, "query")
    assert caught.value.remedy
    assert len(server.requests) == 1


@pytest.mark.parametrize("numbers", [[1.0], [1.0, 2.0, 3.0], []])
def test_a_vector_of_another_dimension_is_refused(server: ProviderServer, numbers: list[float]) -> None:
    server.replies.append(Reply(body=openai_answer([[1.0, 2.0], numbers])))
    with pytest.raises(EmbeddingDimensionMismatch) as caught:
        http(server).embed(["a", "b"], 2, "query")
    assert (caught.value.expected, caught.value.actual) == (2, len(numbers))
    assert str(caught.value) == (
        f"embedding provider 'http', model 'm': the vectors have {len(numbers)} dimensions instead of 2"
    )


def test_a_much_larger_dimension_is_still_named(server: ProviderServer) -> None:
    server.numbers = lambda text, dimension: [0.123456789] * 8192
    with pytest.raises(EmbeddingDimensionMismatch, match="8192 dimensions instead of 3"):
        http(server).embed(["a"] * 16, 3, "query")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_answer_is_not_read_to_its_end(server: ProviderServer, chunked: bool) -> None:
    server.replies.append(Reply(body=b" " * (5 * 1024 * 1024), chunked=chunked))
    embedder = http(server)
    with pytest.raises(EmbeddingAnswerRejected, match="larger than 4194432 bytes"):
        embedder.embed(["a"], 2, "query")
    # What was left of it does not spoil the next request.
    assert len(embedder.embed(["a"], 2, "query")) == 1


def test_an_answer_cut_short_is_refused(server: ProviderServer) -> None:
    server.replies.append(Reply(body=openai_answer([[1, 2]])[:20], headers={"content-length": "2000"}))
    with pytest.raises((EmbeddingAnswerRejected, EmbeddingUnavailable)):
        http(server).embed(["a"], 2, "query")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_accepted_is_reported_without_showing_it(
    server: ProviderServer, status: int
) -> None:
    server.replies.append(failing(status, f"Incorrect API key provided: {KEY}"))
    with pytest.raises(EmbeddingKeyRejected) as caught:
        openai(server).embed(["a"], 3, "query")
    assert KEY not in repr((str(caught.value), caught.value.to_json(), caught.value.__dict__))
    assert "the key was not accepted" in str(caught.value)


def test_a_missing_key_is_reported_as_such(server: ProviderServer) -> None:
    server.replies.append(failing(401))
    with pytest.raises(EmbeddingKeyRejected, match="a key is needed"):
        http(server).embed(["a"], 3, "query")


@pytest.mark.parametrize(
    "reply",
    [
        failing(400, "This model's maximum context length is 8192 tokens, however you requested 9000 tokens"),
        failing(400, "the input length exceeds the context length"),
        failing(422, "text too long"),
        failing(413, "`inputs` must have less than 512 tokens. Given: 601"),
    ],
)
def test_a_text_that_is_too_long_for_the_model_is_reported_as_such(
    server: ProviderServer, reply: Reply
) -> None:
    server.replies += [reply] * 2
    with pytest.raises(EmbeddingTextRejected, match=r"text for model 'm' is too long \(4 characters\)"):
        http(server).embed(["a", "bbbb"], 3, "query")


@pytest.mark.parametrize("text", ["", " \n", "\ud800", "x" * (MAX_TEXT_BYTES + 1)])
def test_a_text_no_model_could_take_is_refused_before_anything_is_sent(
    server: ProviderServer, text: str
) -> None:
    with pytest.raises(EmbeddingTextRejected) as caught:
        http(server).embed(["fine"] * 40 + [text], 3, "query")
    assert caught.value.remedy
    assert server.requests == []


def test_what_a_service_says_is_quoted_in_one_short_line_without_the_key(server: ProviderServer) -> None:
    server.replies.append(failing(404, f"no\nsuch\x1b[31m model for {KEY} " + "x" * 1000))
    with pytest.raises(EmbeddingFailed) as caught:
        openai(server).embed(["a"], 3, "query")
    text = str(caught.value)
    assert "answered 404: no such [31m model for *** xxx" in text
    assert text.isprintable()
    assert len(text) < 450
    assert caught.value.remedy is not None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"plain words", "plain words"),
        (b'{"message": "m"}', "m"),
        (b'{"detail": "d"}', "d"),
        (b'{"error": "e"}', "e"),
        (b'{"error": {"code": 7}}', '{"error": {"code": 7}}'),
    ],
)
def test_the_message_of_a_refusal_is_found(server: ProviderServer, body: bytes, said: str) -> None:
    server.replies.append(Reply(402, body))
    with pytest.raises(EmbeddingFailed) as caught:
        openai(server).embed(["a"], 3, "query")
    assert caught.value.reason == f"answered 402: {said}"


# --- models with one dimension --------------------------------------------------------------------


def test_an_endpoint_that_refuses_a_dimension_is_asked_without(server: ProviderServer) -> None:
    server.replies.append(failing(400, "model 'm' does not support matryoshka representation"))
    embedder = http(server)
    assert len(embedder.embed(["a"], 3, "query")) == 1
    assert len(embedder.embed(["a"], 3, "query")) == 1
    assert ["dimensions" in request.body for request in server.requests] == [True, False, False]


def test_an_endpoint_that_refuses_for_another_reason_is_asked_as_before(server: ProviderServer) -> None:
    server.replies += [failing(400, "no such model")] * 2
    embedder = http(server)
    with pytest.raises(EmbeddingFailed, match="no such model"):
        embedder.embed(["a"], 3, "query")
    embedder.embed(["a"], 3, "query")
    assert ["dimensions" in request.body for request in server.requests] == [True, False, True]


# --- one embedder, many users ---------------------------------------------------------------------


def test_threads_share_an_embedder(server: ProviderServer) -> None:
    embedder = http(server)
    wrong: list[str] = []

    def ask(letter: str) -> None:
        for _ in range(5):
            (vector,) = embedder.embed([letter], 3, "query")
            if not np.allclose(vector, unit(*letters(letter, 3))):
                wrong.append(letter)

    threads = [threading.Thread(target=ask, args=(letter,)) for letter in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(server.requests) == 40


def test_a_proxy_of_the_environment_is_used(server: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//me:pa%40ss@"))
    settings = EmbedSettings.choose("http", model="m", base_url="http://embedder.invalid/v1")
    assert len(open_embedder(settings).embed(["a"], 3, "query")) == 1
    (request,) = server.requests
    assert request.path == "http://embedder.invalid/v1/embeddings"
    assert request.headers["proxy-authorization"] == "Basic bWU6cGFAc3M="


def run(server: ProviderServer, program: str) -> tuple[str, str]:
    """What a program of its own prints, with `embedder` asking the server."""
    start = "from omnigraph.embed.providers import configured_embedder; embedder = configured_embedder()\n"
    environment = {
        **os.environ,
        "OMNIGRAPH_EMBED_PROVIDER": "http",
        "OMNIGRAPH_EMBED_MODEL": "m",
        "OMNIGRAPH_EMBED_BASE_URL": server.url,
    }
    done = subprocess.run(
        [sys.executable, "-c", start + program], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout, done.stderr


def test_a_retry_that_succeeds_prints_nothing(server: ProviderServer) -> None:
    server.replies.append(failing(500, retry_after="0"))
    assert run(server, 'print(len(embedder.embed(["a"], 3, "query")))') == ("1\n", "")
    assert len(server.requests) == 2


FORKS = """
import os
embedder.embed(["a"], 3, "query")
child = os.fork()
embedder.embed(["b" if child else "c"], 3, "query")
if child:
    print(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_speaks_over_connections_of_its_own(server: ProviderServer) -> None:
    assert run(server, FORKS) == ("0\n", "")
    before, *after = sorted(server.requests, key=lambda request: request.body["input"])
    assert [request.client == before.client for request in after] == [True, False]
