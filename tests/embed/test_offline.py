"""The offline model: meaning without a network."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from omnigraph.embed.offline import DIMENSIONS, OfflineEmbedder
from omnigraph.errors import EmbeddingDimensionMismatch, EmbeddingTextRejected

KNOWN = [-0.0111630, 0.0379563, -0.0287198, -0.1254382]

# Any try to open a connection ends the program.
WITHOUT_NETWORK = """
import sys

def forbid(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise SystemExit(f"{event} was called")

sys.addaudithook(forbid)
from omnigraph.embed.providers import configured_embedder
(vector,) = configured_embedder({"OMNIGRAPH_EMBED_PROVIDER": "offline"}).embed(["a graph"], 64, "query")
print(vector.shape, "wordllama" in sys.modules, "requests" in sys.modules)
"""


def test_nothing_is_asked_of_the_network() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NETWORK], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "(64,) False False\n", "")


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_texts_of_like_meaning_are_near(dimension: int) -> None:
    texts = ["a database of nodes and edges", "graph database", "banana bread with walnuts"]
    one, like, unlike = np.array(OfflineEmbedder().embed(texts, dimension, "document"))
    assert one.shape == (dimension,)
    assert np.linalg.norm(one) == pytest.approx(1.0, abs=1e-6)
    assert np.linalg.norm(one - like) < 0.95 < np.linalg.norm(one - unlike)


def test_a_text_has_the_same_vector_whatever_stands_beside_it() -> None:
    texts = ["short", "a much longer text than the others, with many words " * 20, "日本語 🙂"]
    together = OfflineEmbedder().embed(texts * 700, 128, "document")
    alone = [OfflineEmbedder().embed([text], 128, "query")[0] for text in texts]
    assert np.array_equal(together, alone * 700)


def test_the_model_is_the_one_the_vectors_were_written_down_from() -> None:
    (vector,) = OfflineEmbedder().embed(["graph database"], 256, "query")
    np.testing.assert_allclose(vector[:4], KNOWN, atol=1e-6)


@pytest.mark.parametrize("text", ["", "\t"])
def test_an_empty_text_is_refused(text: str) -> None:
    with pytest.raises(EmbeddingTextRejected):
        OfflineEmbedder().embed([text], 64, "query")


@pytest.mark.parametrize("dimension", [1, 63, 512])
def test_a_dimension_the_model_does_not_have_is_refused(dimension: int) -> None:
    with pytest.raises(EmbeddingDimensionMismatch) as caught:
        OfflineEmbedder().embed(["a"], dimension, "query")
    assert "64, 128, 256" in str(caught.value.remedy)


WITHOUT_PACKAGE = """
import sys
sys.modules["wordllama"] = None
from omnigraph.errors import EmbeddingNotConfigured
from omnigraph.embed.offline import OfflineEmbedder
try:
    OfflineEmbedder().embed(["a"], 64, "query")
except EmbeddingNotConfigured as error:
    print(error, error.remedy, sep="; ")
"""


def test_a_missing_package_is_named_with_the_way_to_get_it() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_PACKAGE], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "embedding provider 'offline' needs the package 'wordllama', which is not installed; "
        "install omnigraph with the extra 'offline-embeddings'\n"
    )
