"""Digests tell equal from different, whatever surrounds a value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.embedding.provenance import text_digests, vector_digests
from tests.examples import EXAMPLES

TEXTS = st.lists(st.text(max_size=40), max_size=20)


@settings(max_examples=EXAMPLES // 3)
@given(TEXTS, st.integers(0, 5))
def test_texts_have_equal_digests_when_they_are_equal(texts: list[str], skipped: int) -> None:
    digests = text_digests(pa.array(texts, pa.string())).tolist()
    alone = [text_digests(pa.array([text], pa.string()))[0] for text in texts]
    assert digests == alone
    assert len(set(digests)) == len(set(texts))
    sliced = pa.array(texts, pa.string()).slice(min(skipped, len(texts)))
    assert text_digests(sliced).tolist() == digests[min(skipped, len(texts)) :]


def test_long_texts_that_differ_in_one_place_are_distinguished() -> None:
    texts = ["x" * length for length in range(4090, 4110)]
    for base in ("x" * 4000, "x" * 5000):
        texts += [base, *(base[:at] + "y" + base[at + 1 :] for at in range(0, len(base), 7)), "\0" + base]
    assert len(set(text_digests(pa.array(texts)).tolist())) == len(texts)


def test_digests_stay_what_they_were() -> None:
    assert text_digests(pa.array(["", "a text of some length"])).tolist() == [
        16294208416658607535,
        3195281555402029612,
    ]
    numbers = pa.array(np.arange(8, dtype=np.float32))
    vectors = pa.FixedSizeListArray.from_arrays(numbers, 4)
    assert vector_digests(vectors).tolist() == [14714728727596824318, 11506968737806943295]


def test_vectors_are_distinguished_and_none_is_zero() -> None:
    numbers = np.random.default_rng(3).random((200, 6), dtype=np.float32)
    numbers[100:] = numbers[:100]
    numbers[150] = numbers[50][::-1]
    column = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), 6)
    digests = vector_digests(column)
    assert len(set(digests.tolist())) == 101
    assert digests[0] == digests[100]
    holed = pa.FixedSizeListArray.from_arrays(
        pa.array(numbers.reshape(-1)), type=column.type, mask=pa.array(np.arange(200) % 2 == 0)
    )
    expected = np.where(np.arange(200) % 2 == 0, 0, digests)
    assert vector_digests(holed).tolist() == expected.tolist()
    assert vector_digests(holed.slice(3, 50)).tolist() == expected[3:53].tolist()
