"""Searches by position: exact distances, the nearest of a choice, text matches and relevance."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any, get_args

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance.query import MatchQuery

from omnigraph.lang.schema.catalog import Language, Metric
from omnigraph.query.read_cache import ReadCache
from omnigraph.query.rows import Rows
from omnigraph.query.search import text_lookup
from omnigraph.query.search.searches import Searches
from omnigraph.query.search.text_lookup import TextColumn, TextLookup
from omnigraph.query.search.vectors import Vectors, compute_distances, find_nearest, find_smallest
from omnigraph.storage.indexes import IndexSpec, stage_indexes, text_index_spec
from omnigraph.storage.location import Location
from omnigraph.storage.search import ANALYSER, PARTITION_ROWS, analyse, find_text_index
from omnigraph.storage.staging import commit_staged, stage_append, stage_delete
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import compact
from omnigraph.storage.upsert import stage_upsert
from tests.examples import EXAMPLES

NUMBERS = count()
ROOMY = 1 << 30


def schema(width: int = 2) -> pa.Schema:
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("at", pa.list_(pa.float32(), width)),
        ]
    )


def docs(
    ids: Sequence[str], texts: Sequence[str | None] | None = None, at: Any = None, width: int = 2
) -> pa.Table:
    columns = {"id": list(ids), "text": texts or [None] * len(ids), "at": at or [None] * len(ids)}
    return pa.table(columns, schema=schema(width))


def create_table(place: Path, rows: pa.Table) -> Table:
    width = rows.schema.field("at").type.list_size
    root = Location.parse(place / f"docs{next(NUMBERS)}")
    return commit_staged(stage_append(Tables().create(root, schema(width), primary_key="id"), rows))


def number_rows(table: Table, memory: ReadCache | None = None) -> Rows:
    return Rows("node:Doc", (next(NUMBERS),), table, memory or ReadCache(ROOMY))


def searches(memory: ReadCache | None = None, **options: Any) -> Searches:
    return Searches(memory or ReadCache(ROOMY), **options)


def text_index(table: Table, language: str = "english") -> Table:
    spec = text_index_spec("text", "by_text", language)
    return commit_staged(stage_indexes(table, [spec]))


def vector(*numbers: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(numbers, dtype=np.float32)


def take_names(rows: Rows, positions: Any) -> list[str]:
    names: list[str] = rows.take("id", np.asarray(positions)).to_pylist()
    return names


# --- distances -------------------------------------------------------------------------------------


def test_distances_are_euclidean_exact_and_null_without_a_vector(tmp_path: Path) -> None:
    rows = number_rows(create_table(tmp_path, docs("abc", at=[[0.1, 0.2], [3.1, 4.2], None])))
    found = searches().distances(rows, "at", vector(0.1, 0.2))
    assert found[0].as_py() == 0.0
    assert found[1].as_py() == pytest.approx(5.0)
    assert found[2].as_py() is None
    assert searches().distances(rows, "at", vector(0, 0), np.array([2, -1])).to_pylist() == [None, None]
    assert compute_distances(vector(0, 0), np.array([[3, 4]], np.float32)).tolist() == [5.0]


def test_close_vectors_far_from_zero_keep_their_distances() -> None:
    far = float(np.float32(2**20))
    stored_vectors = np.array([[far, far], [far + 1, far], [far, far + 2]], np.float32)
    assert compute_distances(vector(far, far), stored_vectors).tolist() == [0.0, 1.0, 2.0]


@given(
    st.lists(st.lists(st.floats(width=32, min_value=-1e6, max_value=1e6), min_size=3, max_size=3), min_size=2)
)
def test_distances_equal_those_of_exact_arithmetic(rows: list[list[float]]) -> None:
    query, *others = rows
    for other, found in zip(
        others, compute_distances(vector(*query), np.array(others, np.float32)).tolist(), strict=True
    ):
        square = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(query, other, strict=True))
        assert found == pytest.approx(math.sqrt(square), rel=1e-14, abs=0)


@given(
    st.lists(st.lists(st.floats(width=32, min_value=-1e6, max_value=1e6), min_size=3, max_size=3), min_size=2)
)
def test_cosine_and_dot_equal_those_of_exact_arithmetic(rows: list[list[float]]) -> None:
    query, *others = rows
    stored = np.array(others, np.float32)
    angles, products = (compute_distances(vector(*query), stored, by) for by in ("cosine", "dot"))
    for other, angle, product in zip(others, angles.tolist(), products.tolist(), strict=True):
        dot, a, b = exact_product(query, other), exact_product(query, query), exact_product(other, other)
        assert product == pytest.approx(-float(dot), rel=1e-12, abs=1e-12 * math.sqrt(a) * math.sqrt(b))
        if not a or not b:
            assert angle == math.inf
        else:
            exact = 1 - Decimal(dot.numerator) / Decimal(dot.denominator) / (
                exact_decimal(a) * exact_decimal(b)
            )
            assert angle == pytest.approx(float(exact), rel=1e-12, abs=1e-14)


def exact_product(one: list[float], other: list[float]) -> Fraction:
    return sum((Fraction(a) * Fraction(b) for a, b in zip(one, other, strict=True)), Fraction())


def exact_decimal(square: Fraction) -> Decimal:
    return Decimal(square.numerator).sqrt() / Decimal(square.denominator).sqrt()


def test_directions_that_are_close_keep_their_distance_and_none_is_infinitely_far() -> None:
    stored_vectors = np.array([[1, 0], [4, 0], [1, 1e-7], [0, 2], [-1, 0], [0, 0], [math.nan, 1]], np.float32)
    found = compute_distances(vector(2, 0), stored_vectors, "cosine").tolist()
    assert found == [0.0, 0.0, pytest.approx(5e-15, rel=1e-5), 1.0, 2.0, math.inf, math.inf]
    assert compute_distances(vector(0, 0), stored_vectors, "cosine").tolist() == [math.inf] * 7
    found = compute_distances(vector(2, 0), np.array([[3, 1], [math.inf, 0], [0, 0]], np.float32), "dot")
    assert found.tolist() == [-6.0, math.inf, 0.0]


# --- nearest ---------------------------------------------------------------------------------------


def test_the_nearest_come_first_and_equal_ones_in_the_order_of_ids(tmp_path: Path) -> None:
    at = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], None, [5.0, 0.0], [-1.0, 0.0]]
    rows = number_rows(create_table(tmp_path, docs("fedcba", at=at)))
    positions, distances = searches().nearest(rows, "at", vector(0, 0), 3)
    assert take_names(rows, positions) == ["d", "a", "e"]
    assert distances.tolist() == [0.0, 1.0, 1.0]
    assert take_names(rows, searches().nearest(rows, "at", vector(0, 0), 99)[0]) == ["d", "a", "e", "f", "b"]
    assert len(searches().nearest(rows, "at", vector(0, 0), 0)[0]) == 0


@pytest.mark.parametrize("as_mask", [True, False])
def test_only_the_choice_is_ranked(tmp_path: Path, as_mask: bool) -> None:
    rows = number_rows(create_table(tmp_path, docs("abcd", at=[[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], None])))
    among = np.array([False, True, True, True]) if as_mask else np.array([3, 2, 1])
    positions, _ = searches().nearest(rows, "at", vector(0, 0), 2, among)
    assert take_names(rows, positions) == ["b", "c"]
    nothing = np.zeros(4, np.bool_) if as_mask else np.empty(0, np.int64)
    assert len(searches().nearest(rows, "at", vector(0, 0), 2, nothing)[0]) == 0


def test_vectors_beyond_32_bits_and_not_numbers_come_last(tmp_path: Path) -> None:
    at = [[math.nan, 0.0], [3e38, 3e38], [math.inf, 0.0], [1.0, 0.0]]
    rows = number_rows(create_table(tmp_path, docs("abcd", at=at)))
    assert take_names(rows, searches().nearest(rows, "at", vector(0, 0), 4)[0]) == ["d", "b", "c", "a"]
    assert len(searches().nearest(rows, "at", vector(math.inf, 0), 2)[0]) == 2


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("share", [None, 0.6])
def test_the_short_cut_misses_nothing(offset: float, share: float | None, metric: Metric) -> None:
    random_numbers = np.random.default_rng(7)
    values = (random_numbers.normal(size=(20_000, 8)) + offset).astype(np.float32)
    values[::3] = values[0]  # very many are equally near
    values[7], values[8], values[10] = 0, 1e-30, 1e30
    known = random_numbers.random(len(values)) < 0.9
    column = pa.array(list(values), pa.list_(pa.float32(), 8), mask=~known)
    vectors = Vectors.of(column)
    among = None if share is None else np.flatnonzero(random_numbers.random(len(values)) < share)
    for query in (values[0], values[1] + np.float32(0.01), np.zeros(8, np.float32)):
        for wanted in (1, 10, 5000):
            fast = find_nearest(vectors, vectors.squares(), query, wanted, among, metric)
            slow = find_nearest(vectors, None, query, wanted, among, metric)
            assert sorted(fast[0]) == sorted(slow[0])
            assert len(slow[0]) >= wanted


MAGNITUDES = st.lists(st.integers(-45, 38), min_size=1, max_size=4)


@given(MAGNITUDES, st.integers(1, 5), st.integers(0, 2**32 - 1), st.sampled_from([1, 7, 60]), st.booleans())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_nearest_are_exact_for_finite_vectors_of_any_magnitude(
    magnitudes: list[int], width: int, seed: int, wanted: int, is_stored: bool
) -> None:
    """Products of 32 bits are 0 or infinite for many of these: exact arithmetic on fractions knows better."""
    vectors, query = of_magnitudes(magnitudes, width, seed, is_stored)
    found, near = find_nearest(vectors, vectors.squares(), query, wanted, None)
    exact = np.array([exact_square(query, row) for row in vectors.values[:100]])
    bound = near.max()
    # By 64 bits, on all rows; and those 64 bits by fractions, on some.
    every = compute_distances(query, vectors.values)
    assert sorted(found) == np.flatnonzero(every <= np.sort(every)[wanted - 1]).tolist()
    for square, distance in zip(exact, every[:100].tolist(), strict=True):
        assert distance == pytest.approx(exact_root(square), rel=1e-14, abs=0)
        assert distance <= bound or square >= min(exact_square(query, vectors.values[at]) for at in found)


def of_magnitudes(
    magnitudes: list[int], width: int, seed: int, is_stored: bool
) -> tuple[Vectors, np.ndarray[Any, np.dtype[np.float32]]]:
    """More vectors than are looked at one by one, their components around these powers of ten."""
    numbers = np.random.default_rng(seed)
    scales = 10.0 ** numbers.choice(magnitudes, size=(5_000, 1))
    values = (numbers.uniform(-3, 3, size=(5_000, width)) * scales).astype(np.float32)
    assert np.isfinite(values).all()
    query = values[17] if is_stored else values[17] * np.float32(1.25)
    return Vectors(values, None), query if np.isfinite(query).all() else values[17]


def exact_square(one: Any, other: Any) -> Fraction:
    pairs = zip(one.tolist(), other.tolist(), strict=True)
    return sum(((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs), Fraction())


def exact_root(square: Fraction) -> float:
    """The root of a fraction that is too small or too large for a float."""
    return float(Decimal(square.numerator).sqrt() / Decimal(square.denominator).sqrt())


@given(st.lists(st.sampled_from([*map(float, range(9)), math.inf, math.nan]), min_size=1), st.data())
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_the_nth_smallest_is_that_of_a_sort(numbers: list[float], data: st.DataObject) -> None:
    values = np.array(numbers * 200)
    wanted = data.draw(st.integers(1, len(values)))
    found, right = find_smallest(values, wanted), np.sort(values)[wanted - 1]
    assert found == right or (math.isnan(found) and math.isnan(right))


# --- the vector index ------------------------------------------------------------------------------


def draw_clusters(seed: int, many: int, width: int = 16) -> np.ndarray[Any, np.dtype[np.float32]]:
    centres = np.random.default_rng(1).normal(size=(50, width))
    numbers = np.random.default_rng(seed)
    return (centres[numbers.integers(0, 50, many)] + 0.5 * numbers.normal(size=(many, width))).astype(
        np.float32
    )


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_an_index_gives_the_nearest_of_a_large_table_of_any_choice_and_after_changes(
    tmp_path: Path, metric: Metric
) -> None:
    many, width = 3 * PARTITION_ROWS, 16
    values = draw_clusters(2, many)
    ids = [f"d{number}" for number in range(many)]
    table = create_table(tmp_path, docs(ids, at=list(values), width=width))
    options = {"num_partitions": many // PARTITION_ROWS, "metric": metric.upper()}
    spec = IndexSpec("at", "IVF_FLAT", "by_at", options)
    table = commit_staged(stage_indexes(table, [spec]))
    changed = list(draw_clusters(3, 200))
    table = commit_staged(stage_upsert(table, docs(ids[:200], at=changed, width=width)))
    table = commit_staged(stage_append(table, docs(["n1", "n2"], at=[values[5], None], width=width)))
    table = commit_staged(stage_delete(table, pa.array(ids[300:400])))
    rows = number_rows(table)
    calls: list[str] = []
    table.access.observe = lambda operation, _: calls.append(operation)
    among = np.flatnonzero(np.random.default_rng(4).random(rows.count) < 0.4)
    right = total = 0
    for choice in (None, among):
        for query in (values[5], *draw_clusters(5, 20)):
            exact = searches().nearest(rows, "at", query, 10, choice, metric)
            indexed = searches(exact_bytes=0).nearest(rows, "at", query, 10, choice, metric)
            right += len(np.intersect1d(exact[0], indexed[0]))
            total += 10
            assert indexed[1].tolist() == sorted(indexed[1].tolist())
            assert len(indexed[0]) == 10
    assert right / total >= 0.98
    assert "search" in calls


@pytest.mark.parametrize("scale", [1e-22, 1e-30, 1.0, 1e17])
def test_an_index_is_not_asked_where_its_32_bits_cannot_tell_distances_apart(
    tmp_path: Path, scale: float
) -> None:
    values = (draw_clusters(2, 5000) * scale).astype(np.float32)
    table = create_table(tmp_path, docs([f"d{n}" for n in range(5000)], at=list(values), width=16))
    spec = IndexSpec("at", "IVF_FLAT", "by_at", {"num_partitions": 1, "metric": "L2"})
    rows = number_rows(commit_staged(stage_indexes(table, [spec])))
    for query in (values[5], values[5] * np.float32(1.01), np.full(16, 1e30, np.float32)):
        exact = searches().nearest(rows, "at", query, 10)
        indexed = searches(exact_bytes=0).nearest(rows, "at", query, 10)
        assert indexed[0].tolist() == exact[0].tolist()
        assert indexed[1].tolist() == exact[1].tolist()


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_an_index_of_one_partition_finds_the_nearest_by_any_metric(tmp_path: Path, metric: Metric) -> None:
    values = draw_clusters(2, 5000)
    values[3] = 0
    table = create_table(tmp_path, docs([f"d{n}" for n in range(5000)], at=list(values), width=16))
    spec = IndexSpec("at", "IVF_FLAT", "by_at", {"num_partitions": 0, "metric": metric.upper()})
    rows = number_rows(commit_staged(stage_indexes(table, [spec])))
    asked = searches(exact_bytes=0)
    for query in (values[5], values[6]):
        exact = searches().nearest(rows, "at", query, 10, None, metric)
        indexed = asked.nearest(rows, "at", query, 10, None, metric)
        assert asked.how == "stored index"
        assert indexed[0].tolist() == exact[0].tolist()
        assert indexed[1].tolist() == exact[1].tolist()
    assert asked.nearest(rows, "at", values[5], 3) is not None
    assert asked.how == "vectors compared", "an index of another metric is not asked"


def test_a_choice_of_few_rows_is_compared_though_there_is_an_index(tmp_path: Path) -> None:
    table = create_table(
        tmp_path, docs([f"d{n}" for n in range(5000)], at=list(draw_clusters(2, 5000)), width=16)
    )
    spec = IndexSpec("at", "IVF_FLAT", "by_at", {"num_partitions": 1, "metric": "L2"})
    rows = number_rows(commit_staged(stage_indexes(table, [spec])))
    far = searches().nearest(rows, "at", np.zeros(16, np.float32), 5000)[0][-3:]
    found = searches(exact_bytes=0).nearest(rows, "at", np.zeros(16, np.float32), 3, far)
    assert sorted(found[0]) == sorted(far)


# --- texts -----------------------------------------------------------------------------------------


def matching(
    rows: Rows,
    text: str,
    fn: Any = "search",
    edits: int = 2,
    memory: ReadCache | None = None,
    language: str = "english",
) -> set[str]:
    hits, _ = searches(memory).matches(TextColumn(rows, "text", language), text, fn, edits)
    return set(take_names(rows, np.flatnonzero(hits)))


@pytest.mark.parametrize("indexed", [False, True])
def test_any_common_token_matches_and_null_texts_are_unknown(tmp_path: Path, indexed: bool) -> None:
    table = create_table(tmp_path, docs("abcde", ["Running DOGS", "a café", None, "", "the dog's bed"]))
    rows = number_rows(text_index(table) if indexed else table)
    assert matching(rows, "dog cafe") == {"a", "b", "e"}
    assert matching(rows, "ran Dogs!", "match_text") == {"a", "e"}
    assert matching(rows, "the of") == set()
    assert matching(rows, "") == set()
    assert searches().matches(TextColumn(rows, "text"), "dog", "search")[1].tolist() == [
        False,
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("indexed", [False, True])
def test_relevance_is_best_first_and_has_matches_only(tmp_path: Path, indexed: bool) -> None:
    table = create_table(tmp_path, docs("cbad", ["graph graph", "graph", "graph", "table"]))
    rows = number_rows(text_index(table) if indexed else table)
    positions, scores = searches().relevance(TextColumn(rows, "text"), "graph")
    assert take_names(rows, positions) == ["c", "a", "b"]
    assert scores[0] > scores[1] == scores[2] > 0
    assert take_names(rows, searches().relevance(TextColumn(rows, "text"), "graph", 2)[0]) == ["c", "a"]
    assert take_names(
        rows, searches().relevance(TextColumn(rows, "text"), "graph", 1, np.array([1, 2, 3]))[0]
    ) == ["a"]
    assert (
        take_names(rows, searches().relevance(TextColumn(rows, "text"), "graph", None, np.array([3]))[0])
        == []
    )
    assert take_names(rows, searches().relevance(TextColumn(rows, "text"), "graph", 0)[0]) == []


def test_the_best_few_of_very_many_equal_texts_are_those_with_the_least_ids(tmp_path: Path) -> None:
    ids = [f"{number:04}" for number in range(500)]
    random.Random(3).shuffle(ids)
    rows = number_rows(text_index(create_table(tmp_path, docs(ids, ["red"] * 500))))
    assert take_names(rows, searches().relevance(TextColumn(rows, "text"), "red", 3)[0]) == [
        "0000",
        "0001",
        "0002",
    ]


def test_the_best_few_are_found_when_better_ones_were_deleted_and_put_out_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored index goes on finding rows that were deleted, once the fragments they were in are gone."""
    monkeypatch.setattr(text_lookup, "_EXACT_TEXTS", 0)
    ids = [f"{number:04}" for number in range(500)]
    gone = ["red " * (number % 40 + 2) for number in range(400)]
    texts = [*gone, *(f"red {'blue ' * (1 + number % 5)}" for number in range(100))]
    table = text_index(create_table(tmp_path, docs(ids, texts)))
    table = compact(commit_staged(stage_delete(table, pa.array(ids[:400])))).table
    memory = ReadCache(ROOMY)
    rows = number_rows(table, memory)
    positions, _ = searches(memory).relevance(TextColumn(rows, "text"), "red", 3)
    assert memory.get((*rows.identity, "text", "text")) is None, "the stored index answered"
    assert take_names(rows, positions) == ["0400", "0405", "0410"]


def test_a_stored_index_and_one_in_memory_rank_alike(tmp_path: Path) -> None:
    words, colours = random.Random(5), ["red", "green", "blue", "pink", "grey"]
    texts = [" ".join(words.choices(colours, k=words.randint(0, 30))) for _ in range(300)]
    table = create_table(tmp_path, docs([f"d{n}" for n in range(300)], texts))
    memory = ReadCache(ROOMY)
    plain, indexed = number_rows(table), number_rows(text_index(table), memory)
    for query in ("red", "red red blue", "pink grey green"):
        want = searches().relevance(TextColumn(plain, "text"), query)
        found = searches(memory).relevance(TextColumn(indexed, "text"), query)
        assert memory.get((*indexed.identity, "text", "text")) is None, "the stored index answered"
        assert take_names(indexed, found[0]) == take_names(plain, want[0])
        assert found[1] == pytest.approx(want[1], rel=1e-5)


WORDS = ["red", "blue", "green", "graph", "table", "node"]
SENTENCES = st.one_of(st.none(), st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join))
WRITTEN = st.lists(
    st.tuples(
        st.sampled_from(["append", "update", "delete", "compact", "index"]),
        st.lists(SENTENCES, min_size=1, max_size=5),
    ),
    max_size=5,
)


def bm25(texts: Mapping[str, str | None], query: str) -> dict[str, float]:
    """The formula of the documentation, in 64 bits, over the texts as they are now."""
    tokens = {id: words for id, text in texts.items() if (words := analyse(text or ""))}
    size = len(tokens)
    average = sum(map(len, tokens.values())) / max(size, 1)
    scores: dict[str, float] = {}
    for token in analyse(query):
        having = sum(token in words for words in tokens.values())
        rarity = math.log(1 + (size - having + 0.5) / (having + 0.5))
        for id, words in tokens.items():
            if times := words.count(token):
                damping = 1.2 * (1 - 0.75 + 0.75 * len(words) / average)
                scores[id] = scores.get(id, 0.0) + rarity * times * 2.2 / (times + damping)
    return scores


def rank(rows: Rows, query: str) -> dict[str, float]:
    positions, scores = searches().relevance(TextColumn(rows, "text"), query)
    return dict(zip(take_names(rows, positions), scores.tolist(), strict=True))


def write_more(table: Table, texts: dict[str, str | None], step: str, new: list[str | None]) -> Table:
    """One more write, in the table and in `texts`."""
    ids = sorted(texts)
    match step:
        case "append":
            rows = {f"n{len(ids)}-{number}": text for number, text in enumerate(new)}
            texts.update(rows)
            return commit_staged(stage_append(table, docs(list(rows), list(rows.values()))))
        case "update":
            rows = dict(zip(ids[::2], new, strict=False))
            texts.update(rows)
            return commit_staged(stage_upsert(table, docs(list(rows), list(rows.values()))))
        case "delete":
            gone = ids[: min(len(new), len(ids) - 1)]
            for id in gone:
                del texts[id]
            return commit_staged(stage_delete(table, pa.array(gone, pa.string()))) if gone else table
        case "compact":
            return compact(table).table
        case _:
            return text_index(table)


@pytest.mark.fuzz
@given(st.lists(SENTENCES, min_size=2, max_size=12), WRITTEN)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_scores_are_those_of_the_formula_whatever_was_written_since_the_index_was_built(
    tmp_path: Path, first: list[str | None], steps: list[tuple[str, list[str | None]]]
) -> None:
    texts = {f"d{number}": text for number, text in enumerate(first)}
    table = text_index(create_table(tmp_path, docs(list(texts), list(texts.values()))))
    for step, new in [("index", []), *steps]:
        table = write_more(table, texts, step, new)
        for query in ("red", "blue graph", "node node table"):
            assert rank(number_rows(table), query) == pytest.approx(bm25(texts, query), rel=1e-5)


def test_a_stored_index_gives_the_scores_of_the_formula_right_after_it_was_built(tmp_path: Path) -> None:
    texts = {f"d{number}": " ".join(WORDS[number % 5 :]) for number in range(50)}
    rows = number_rows(text_index(create_table(tmp_path, docs(list(texts), list(texts.values())))))
    looked = TextLookup(ReadCache(ROOMY))
    positions, scores = looked.relevance(TextColumn(rows, "text"), "red node", None)
    assert looked.how == "stored index"
    found = dict(zip(take_names(rows, positions), scores.tolist(), strict=True))
    assert found == pytest.approx(bm25(texts, "red node"), rel=1e-5)


def test_in_a_large_table_scores_of_common_words_deviate_little_while_few_texts_are_new_or_gone(
    tmp_path: Path,
) -> None:
    """What docs/search.md says about tables of more than 32,768 texts."""
    numbers = random.Random(5)
    many = (1 << 15) + 1_000
    texts: dict[str, str | None] = {
        f"d{number}": " ".join(numbers.choices(WORDS, k=numbers.randint(1, 12))) for number in range(many)
    }
    table = text_index(create_table(tmp_path, docs(list(texts), list(texts.values()))))
    table = write_more(table, texts, "append", ["red"] * 500)
    table = write_more(table, texts, "delete", [None] * 500)
    rows = number_rows(table)
    looked = TextLookup(ReadCache(ROOMY))
    positions, scores = looked.relevance(TextColumn(rows, "text"), "red blue", None)
    assert looked.how == "stored index"
    found = dict(zip(take_names(rows, positions), scores.tolist(), strict=True))
    assert found == pytest.approx(bm25(texts, "red blue"), rel=0.05)
    table = write_more(table, texts, "delete", [None])
    looked.relevance(TextColumn(number_rows(table), "text"), "red blue", None)
    assert looked.how != "stored index", "more than 1,000 texts are new or gone"


def test_many_searches_of_one_version_are_answered_from_memory(tmp_path: Path) -> None:
    table = text_index(create_table(tmp_path, docs("ab", ["red", "blue"])))
    memory = ReadCache(ROOMY)
    rows = number_rows(table, memory)
    calls: list[str] = []
    table.access.observe = lambda operation, _: calls.append(operation)
    for _ in range(30):
        assert matching(rows, "red", memory=memory) == {"a"}
    assert 0 < calls.count("search") < 10


def test_an_index_in_memory_grows_with_the_table(tmp_path: Path) -> None:
    memory = ReadCache(ROOMY)
    table = create_table(tmp_path, docs("abcdefgh", ["red", "red", "blue", None, "red", "red", "red", "red"]))
    rows = number_rows(table, memory)
    assert matching(rows, "red", memory=memory) == set("abefgh")
    table = commit_staged(stage_upsert(table, docs("ai", ["blue", "blue red"])))
    table = commit_staged(stage_delete(table, pa.array(["b"])))
    grown = rows.grow((next(NUMBERS),), table)
    assert grown is not None
    assert matching(grown, "red", memory=memory) == set("iefgh")
    assert matching(grown, "blue", memory=memory) == set("aic")
    assert matching(grown, "blau", "fuzzy", memory=memory) == set("aic")
    fresh, grew = number_rows(table), searches(memory).relevance(TextColumn(grown, "text"), "blue red")
    want = searches().relevance(TextColumn(fresh, "text"), "blue red")
    assert take_names(grown, grew[0]) == take_names(fresh, want[0])
    assert grew[1].tolist() == want[1].tolist(), "dead texts count for nothing"


WORDS = ["Red", "reds", "blue", "graphs", "the", "café", "cafe", "idée", "ideas", "naïve—x", "漢字", "x" * 45]
TEXTS = st.none() | st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
STEPS = st.lists(
    st.tuples(st.just("put"), st.dictionaries(st.sampled_from("abcdefghij"), TEXTS, min_size=1, max_size=4))
    | st.tuples(st.just("delete"), st.sampled_from("abcdefghij"))
    | st.tuples(st.sampled_from(["compact", "index", "extend", "split"]), st.none()),
    min_size=1,
    max_size=8,
)


def change_table(table: Table, step: str, argument: Any) -> Table:
    match step:
        case "put":
            return commit_staged(stage_upsert(table, docs(list(argument), list(argument.values()))))
        case "delete":
            return commit_staged(stage_delete(table, pa.array([argument])))
        case "compact":
            return compact(table).table
        case "index":
            return text_index(table)
    merging = {} if step == "extend" else {"num_indices_to_merge": 0}
    table.native.optimize.optimize_indices(**merging)
    return table.latest()


def fresh_matches(table: Table, queries: Sequence[str]) -> list[set[str]]:
    """What a new index over a copy of the rows finds."""
    rows = table.scan(["id", "text"])
    if len(rows) == 0:
        return [set() for _ in queries]
    copy = lance.write_dataset(rows, f"memory://copy{next(NUMBERS)}")
    copy.create_scalar_index("text", "INVERTED", **ANALYSER)
    hits = [
        copy.scanner(columns=["id", "_score"], full_text_query=MatchQuery(query, "text")).to_table()
        for query in queries
    ]
    return [set(found.column("id").to_pylist()) for found in hits]


QUERIES = ["red", "Graphs cafe", "naïve 漢字", "idea the"]


@given(st.dictionaries(st.sampled_from("abcdefghij"), TEXTS, min_size=1), STEPS)
@settings(
    max_examples=max(1, EXAMPLES // 5),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_same_rows_match_however_the_table_came_about(
    tmp_path: Path, first: dict[str, str | None], steps: list[tuple[str, Any]]
) -> None:
    table = create_table(tmp_path, docs(list(first), list(first.values())))
    memory = ReadCache(ROOMY)
    rows: Rows | None = number_rows(table, memory)
    for step, argument in steps:
        table = change_table(table, step, argument)
        rows = (rows and rows.grow((next(NUMBERS),), table)) or number_rows(table, memory)
        cold = number_rows(table)
        for query, want in zip(QUERIES, fresh_matches(table, QUERIES), strict=True):
            assert matching(cold, query) == want
            assert set(take_names(cold, searches().relevance(TextColumn(cold, "text"), query)[0])) == want
            assert matching(rows, query, memory=memory) == want
            assert matching(cold, query, "fuzzy", 0) == want


PIECES = [
    "Häuser",
    "laufende",
    "Katzen",
    "mangé",
    "l'école",
    "Running",
    "dogs",
    "der",
    "the",
    "и",
    "дома",
    "книги",
    "الكتب",
    "σπίτια",
    "evler",
    "東京都に住んでいます",
    "我爱北京天安门",
    "カタカナ",
    "한국어",
    "검색을",
    "สวัสดีครับ",
    "-",
    "_",
    "·",
    "。",
    "aB9",
    "3.14",
    "é́",
    " ",
    "les maisons",
    "x" * 41,
]
MIXED = st.none() | st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=8)


@pytest.mark.parametrize("language", get_args(Language))
@given(st.lists(MIXED, min_size=1, max_size=9), st.lists(st.sampled_from(PIECES), min_size=1, max_size=2))
@settings(
    max_examples=max(1, EXAMPLES // 20),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_in_every_language_the_same_rows_match_with_an_index_and_without(
    tmp_path: Path, language: str, texts: list[str | None], words: list[str]
) -> None:
    query = " ".join(words)
    plain = create_table(tmp_path, docs([f"d{number}" for number in range(len(texts))], texts))
    indexed = text_index(plain, language)
    stored = find_text_index(indexed, "text", language)
    assert stored is not None, "the index is trusted"
    tokens = set(analyse(query, language))
    want = {f"d{at}" for at, text in enumerate(texts) if tokens & set(analyse(text or "", language))}
    for table in (plain, indexed):
        assert matching(number_rows(table), query, language=language) == want
    (one, lookup), (other, memory) = (
        (number_rows(table), TextLookup(ReadCache(ROOMY))) for table in (indexed, plain)
    )
    found, looked = lookup.relevance(TextColumn(one, "text", language), query, None)
    again, made = memory.relevance(TextColumn(other, "text", language), query, None)
    scores = dict(zip(take_names(one, found), looked.tolist(), strict=True))
    assert scores == pytest.approx(dict(zip(take_names(other, again), made.tolist(), strict=True)), rel=1e-5)


def test_an_index_of_one_language_is_not_asked_in_another(tmp_path: Path) -> None:
    table = text_index(create_table(tmp_path, docs("abc", ["Häuser", "Haus", "running"])), "german")
    assert find_text_index(table, "text", "english") is None
    rows = number_rows(table)
    memory = ReadCache(ROOMY)
    assert matching(rows, "haus", memory=memory, language="german") == {"a", "b"}
    assert matching(rows, "run", memory=memory, language="german") == set()
    assert matching(rows, "run", memory=memory) == {"c"}
    assert matching(rows, "haus", memory=memory, language="plain") == {"b"}


def test_an_index_that_finds_old_texts_is_not_asked(tmp_path: Path) -> None:
    table = text_index(create_table(tmp_path, docs("ab", ["red", "red"])))
    table = change_table(commit_staged(stage_upsert(table, docs("a", ["blue"]))), "split", None)
    assert find_text_index(table, "text") is None
    assert matching(number_rows(table), "red") == {"b"}
