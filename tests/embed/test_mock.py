"""The mock provider never changes its mind."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from omnigraph.embed.mock import MockEmbedder
from omnigraph.errors import EmbeddingTextRejected

# Written down once; a change here breaks every graph that holds mock vectors.
KNOWN = {
    "graph": [
        "-0x1.39dd520000000p-1",
        "0x1.93c9880000000p-1",
        "-0x1.6549660000000p-9",
        "0x1.83a5060000000p-5",
    ],
    "Ä🙂": [
        "-0x1.3b232a0000000p-1",
        "0x1.4265b40000000p-1",
        "0x1.68dfe60000000p-3",
        "0x1.c291960000000p-2",
    ],
}


@pytest.mark.parametrize("text", KNOWN)
def test_vectors_stay_what_they_were(text: str) -> None:
    (vector,) = MockEmbedder().embed([text], 4, "query")
    assert [number.hex() for number in vector.tolist()] == KNOWN[text]


def test_another_process_makes_the_same_vectors() -> None:
    program = """
from omnigraph.embed.mock import MockEmbedder
print(MockEmbedder("any").embed(["eine Überraschung"], 300, "document")[0].tobytes().hex())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    (vector,) = MockEmbedder().embed(["eine Überraschung"], 300, "query")
    assert done.stdout.strip() == vector.tobytes().hex()


@pytest.mark.parametrize("dimension", [1, 2, 3, 256, 3072])
def test_vectors_have_the_asked_dimension_and_length_one(dimension: int) -> None:
    for vector in MockEmbedder().embed(["a", "b"], dimension, "query"):
        assert vector.dtype == np.float32
        assert vector.shape == (dimension,)
        assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1.0, abs=1e-6)


def test_different_texts_point_in_different_directions() -> None:
    vectors = np.array(MockEmbedder().embed([f"text {at}" for at in range(50)], 256, "query"))
    likeness = vectors @ vectors.T - np.eye(50)
    assert np.abs(likeness).max() < 0.4
    assert abs(vectors.mean()) < 0.01


def test_an_empty_text_is_refused_as_by_real_providers() -> None:
    with pytest.raises(EmbeddingTextRejected):
        MockEmbedder().embed([" "], 3, "query")
