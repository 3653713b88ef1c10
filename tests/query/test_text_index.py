"""Fuzzy words, and the text index in memory."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.query.search.text_index import TextIndex, within_edits
from omnigraph.storage.search import analyse
from omnigraph.storage.staging import commit_staged, stage_append
from tests.query.test_search import create_table, docs, matching, number_rows, text_index

# --- fuzzy -----------------------------------------------------------------------------------------


def plain_distance(left: str, right: str) -> int:
    row = list(range(len(right) + 1))
    for number, letter in enumerate(left, 1):
        above, row[0] = row[0], number
        for place, other in enumerate(right, 1):
            above, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, above + (letter != other))
    return row[-1]


LETTERS = st.text("abé漢", max_size=6)


@given(LETTERS, st.lists(LETTERS), st.integers(-1, 7))
def test_edits_are_counted_as_the_textbook_does(word: str, others: list[str], edits: int) -> None:
    found = within_edits(word, pa.array(others, pa.string()), edits)
    assert found.tolist() == [plain_distance(word, other) <= edits for other in others]


@given(st.lists(st.lists(LETTERS, max_size=3).map(" ".join), max_size=8), LETTERS, st.integers(0, 3))
def test_fuzzy_compares_the_tokens_of_both_sides(texts: list[str], query: str, edits: int) -> None:
    wanted = analyse(query)
    found = TextIndex.of(pa.array(texts, pa.string())).having_similar(wanted, edits)
    assert found.tolist() == [
        any(plain_distance(a, b) <= edits for a in wanted for b in analyse(text)) for text in texts
    ]


@pytest.mark.parametrize("indexed", [False, True])
def test_fuzzy_finds_what_is_misspelt_also_outside_of_the_index(tmp_path: Path, indexed: bool) -> None:
    table = create_table(tmp_path, docs("ab", ["database", "idéal"]))
    table = text_index(table) if indexed else table
    rows = number_rows(commit_staged(stage_append(table, docs("cd", ["a datbase", None]))))
    assert matching(rows, "databse", "fuzzy") == {"a", "c"}
    assert matching(rows, "ideel", "fuzzy", 1) == {"b"}
    assert matching(rows, "databse", "fuzzy", 0) == matching(rows, "databse") == set()
    assert matching(rows, "database", "fuzzy", -1) == set()


# --- the index in memory ---------------------------------------------------------------------------


@given(
    st.lists(st.none() | st.text(max_size=12) | st.sampled_from(["The dogs", "a-b", "É_é", "\u0661\u0662"]))
)
def test_the_index_in_memory_holds_the_tokens_of_each_text(texts: list[str | None]) -> None:
    index = TextIndex.of(pa.array(texts, pa.string()))
    held: list[list[str]] = [[] for _ in texts]
    for run in index.runs:
        for place, token in enumerate(run.tokens.to_pylist()):
            entries = run.entries(place)
            for position, times in zip(run.positions[entries], run.counts[entries], strict=True):
                held[run.start + position] += [token] * int(times)
        assert run.lengths.tolist() == [len(tokens) for tokens in held]
    assert [sorted(tokens) for tokens in held] == [sorted(analyse(text or "")) for text in texts]


def test_a_slice_and_the_wide_kind_of_texts_are_read_alike() -> None:
    texts = pa.array(["one", None, "two three", "three"])
    for column in (texts.slice(1), texts.slice(1).cast(pa.large_string())):
        assert TextIndex.of(column).having_any(["three"]).tolist() == [False, True, True]


def test_long_queries_find_the_same_as_short_ones() -> None:
    index = TextIndex.of(pa.array(["apple", "pear", "plum"]))
    many = [*(f"none{number}" for number in range(500)), *analyse("plum apple")]
    assert index.having_any(many).tolist() == [True, False, True]
    assert index.relevance(many, None)[0].tolist() == [0, 2]


def test_an_index_in_many_runs_is_that_of_all_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    words = random.Random(9)
    texts = [" ".join(words.choices(["aa", "bb", "cc", "dd"], k=words.randint(0, 3))) for _ in range(40_000)]
    whole = TextIndex.of(pa.array(texts))
    assert whole.having_any(["aa"]).tolist() == ["aa" in text for text in texts]
    monkeypatch.setattr("omnigraph.query.search.text_index._RUN", 1000)
    cut = TextIndex.of(pa.array(texts[:10_500])).extended(len(texts), pa.array(texts).slice)
    assert len(cut.runs) > 30
    for tokens in (["aa"], ["bb", "aa", "bb"], ["ee"]):
        assert (cut.having_any(tokens) == whole.having_any(tokens)).all()
        assert (cut.having_similar(tokens, 1) == whole.having_similar(tokens, 1)).all()
        alive = np.arange(len(texts)) % 3 > 0
        for mask in (None, alive):
            for found, want in zip(cut.relevance(tokens, mask), whole.relevance(tokens, mask), strict=True):
                assert found.tolist() == want.tolist()
    assert cut.nbytes > 0


def test_an_index_that_grows_text_by_text_has_few_runs_and_reads_few_texts_again() -> None:
    texts = pa.array([f"word{number}" for number in range(1000)])
    index = whole = TextIndex.of(texts.slice(0, 500))
    read = 0
    for length in range(501, 1001):
        starts: list[int] = []
        index = index.extended(length, partial(_read_from, texts.slice(0, length), starts))
        read += length - starts[0]
        assert index.runs[0] is whole.runs[0]
    assert len(index.runs) < 10
    assert read < 500 * 10 + 1000, "a text is read again when its run doubles"
    for number in (7, 500, 998, 999):
        assert np.flatnonzero(index.having_any([f"word{number}"])).tolist() == [number]


def _read_from(texts: pa.Array, starts: list[int], start: int) -> pa.Array:
    starts.append(start)
    return texts.slice(start)
