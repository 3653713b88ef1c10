"""Full text in its simplest form: lower case, split at everything that is no letter or digit.

A real index also removes stop words, stems and folds accents. So this form is right only for texts of
plain words that all of this leaves alone, and a relevance is right only in whether it is there and in
which of two clearly different texts has the larger one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from omnigraph.storage.search import analyse


def words(text: str, language: str = "english") -> list[str]:
    # Stems and dictionaries are not written again here: what counts is that both sides have the same words.
    return re.findall(r"[^\W_]+", text.lower()) if language in SIMPLE else analyse(text, language)


SIMPLE = ("english", "plain")


def matches(text: str | None, query: str | None, max_edits: int, language: str = "english") -> bool | None:
    """Whether a word of the text is, but for some edits, a word of the query."""
    if text is None or query is None:
        return None
    asked = words(query, language)
    return any(edits(one, other) <= max_edits for one in words(text, language) for other in asked)


def edits(one: str, other: str) -> int:
    """How many letters must be inserted, removed or replaced to make one word of the other."""
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, another in enumerate(other, 1):
            replaced = before[column - 1] + (letter != another)
            now.append(min(before[column] + 1, now[column - 1] + 1, replaced))
        before = now
    return before[-1]


def bm25_scores(texts: Mapping[str, str | None], query: str, language: str = "english") -> dict[str, float]:
    """The relevance of each text with a word of the query, by id."""
    found = {id_: words(text, language) for id_, text in texts.items() if text is not None}
    mean = sum(map(len, found.values())) / max(1, len(found)) or 1
    scores: dict[str, float] = {}
    for word in dict.fromkeys(words(query, language)):
        having = {id_: text.count(word) for id_, text in found.items() if word in text}
        rarity = math.log(1 + (len(found) - len(having) + 0.5) / (len(having) + 0.5))
        for id_, times in having.items():
            weight = times * 2.2 / (times + 1.2 * (0.25 + 0.75 * len(found[id_]) / mean))
            scores[id_] = scores.get(id_, 0) + rarity * weight
    return scores
