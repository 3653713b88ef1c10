"""Edit distance of one word to very many: letters put in, left out or exchanged, one at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def within_edits(word: str, others: pa.Array, edits: int) -> NDArray[np.bool_]:
    """Which of the other words so many edits or fewer turn into `word`; letters are code points."""
    found = np.zeros(len(others), dtype=np.bool_)
    if edits < 0:
        return found
    lengths = pc.utf8_length(others).to_numpy(zero_copy_only=False)
    for length in np.unique(lengths[np.abs(lengths - len(word)) <= edits]):
        places = np.flatnonzero(lengths == length)
        letters = _letters(others.take(pa.array(places)), int(length))
        found[places] = _distances(word, letters) <= edits
    return found


def _letters(words: pa.Array, length: int) -> NDArray[np.uint32]:
    """The code points of words that are equally long, one row for each letter."""
    joined = "".join(words.to_pylist()).encode("utf-32-le", "surrogatepass")
    return np.frombuffer(joined, np.uint32).reshape(len(words), length).T


def _distances(word: str, letters: NDArray[np.uint32]) -> NDArray[np.int16]:
    """The edit distance of a word to each of many equally long ones, all at once."""
    length, many = letters.shape
    before = np.repeat(np.arange(length + 1, dtype=np.int16)[:, None], many, axis=1)
    for number, letter in enumerate(word, 1):
        after = np.empty_like(before)
        after[0] = number
        differs = letters != ord(letter)
        for place in range(length):
            cheapest = np.minimum(before[place + 1], after[place]) + 1
            after[place + 1] = np.minimum(cheapest, before[place] + differs[place])
        before = after
    return before[length]
