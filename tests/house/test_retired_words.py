"""Words that were retired do not return."""

from __future__ import annotations

import pytest

from tests.house.retired_words import WORDS, allowed, count


def test_no_retired_word_returns_and_those_left_are_on_record() -> None:
    assert dict(count()) == {word: number for word, number in allowed().items() if number}, (
        "after removing some, run `python tests/house/retired_words.py --record`"
    )


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("told", "def _told(version):"),
        ("told", "what is told"),
        ("whoever", "for whomever"),
        ("in vain", "made_in_vain"),
        ("mend", "mend(table)"),
    ],
)
def test_a_word_is_found_in_prose_and_in_names(word: str, text: str) -> None:
    assert WORDS[word].search(text)
    assert not WORDS[word].search("recommended, untoldable, Amanewton, invainly, whoevers")
