"""What stored indexes answer, and what Lance does that the rest of the search code leans on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest
from lance.query import MatchQuery
from numpy.typing import NDArray

from omnigraph.lang.schema.catalog import Language
from omnigraph.storage.indexes import IndexSpec, stage_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.search import (
    ANALYSER,
    analyse,
    analyse_words,
    analyser_of,
    find_text_index,
    find_vector_index,
    search_text,
    search_vectors,
)
from omnigraph.storage.staging import commit_staged, stage_append, stage_delete
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upsert import stage_upsert

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("text", pa.string()),
        pa.field("at", pa.list_(pa.float32(), 2)),
    ]
)


def docs(**texts: str | None) -> pa.Table:
    at = [[float(number), 0.0] for number in range(len(texts))]
    return pa.table({"id": list(texts), "text": list(texts.values()), "at": at}, schema=SCHEMA)


def create_table(tmp_path: Path, rows: pa.Table) -> Table:
    table = Tables().create(Location.parse(tmp_path / "docs"), SCHEMA, primary_key="id")
    return commit_staged(stage_append(table, rows))


def with_text_index(table: Table, **options: Any) -> Table:
    return commit_staged(
        stage_indexes(table, [IndexSpec("text", "INVERTED", "by_text", {**ANALYSER, **options})])
    )


def with_vector_index(table: Table, **options: Any) -> Table:
    spec = IndexSpec("at", "IVF_FLAT", "by_at", {"num_partitions": 1, "metric": "L2", **options})
    return commit_staged(stage_indexes(table, [spec]))


def ids(table: Table, row_ids: Any) -> set[str]:
    return set(table.take(pa.array(row_ids), ["id"]).column("id").to_pylist())


def hits(table: Table, text: str, limit: int | None = None) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    found = search_text(table, "text", text, limit)
    assert found is not None
    return found


def search(table: Table, text: str) -> set[str]:
    return ids(table, hits(table, text)[0])


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The Running DOGS", ["run", "dog"]),
        ("Crème brûlée", ["creme", "brulee"]),
        ("rock-and-roll, rock_n_roll", ["rock", "roll", "rock", "n", "roll"]),
        ("x" * 39 + " " + "x" * 40, ["x" * 39]),
        ("", []),
        ("and the of", []),
    ],
)
def test_texts_become_folded_english_stems_without_stop_words(text: str, tokens: list[str]) -> None:
    assert analyse(text) == tokens


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("german", "Die laufenden Häuser", ["laufend", "haus"]),
        ("french", "Les maisons", ["maison"]),
        ("russian", "книги", ["книг"]),
        ("plain", "The Running Cafés", ["the", "running", "cafes"]),
        ("cjk", "我爱北京天安门, Running", ["我", "爱", "北京", "天安门", "running"]),
        ("cjk", "東京都に住む 한국어", ["東京", "都", "に", "住む", "한국어"]),
    ],
)
def test_texts_become_tokens_as_their_language_has_them(language: str, text: str, tokens: list[str]) -> None:
    assert analyse(text, language) == tokens


@pytest.mark.parametrize("language", get_args(Language))
def test_there_is_an_analyser_for_every_language_that_a_schema_can_declare(language: str) -> None:
    assert analyse("x9", language) == ["x9"]
    assert analyser_of(language)["with_position"] is False


def test_words_keep_their_places_among_words_that_give_no_token() -> None:
    places, tokens = analyse_words(["the", "dogs", "and", "x" * 41, "x", "2nd", "the"])
    assert list(zip(places.tolist(), tokens, strict=True)) == [(1, "dog"), (4, "x"), (5, "2nd")]
    assert analyse_words([])[1] == []


def test_an_index_made_with_the_analyser_is_trusted(tmp_path: Path) -> None:
    table = with_text_index(create_table(tmp_path, docs(a="running dogs", b="a cat")))
    index = find_text_index(table, "text")
    assert index is not None
    assert (index.indexed_rows, index.unindexed_rows) == (2, 0)
    assert search(table, "run") == {"a"}


@pytest.mark.parametrize(
    "other", [{"stem": False}, {"remove_stop_words": False}, {"lower_case": False}, {"base_tokenizer": "raw"}]
)
def test_an_index_made_with_another_analyser_is_not(tmp_path: Path, other: dict[str, Any]) -> None:
    table = with_text_index(create_table(tmp_path, docs(a="running dogs")), **other)
    assert find_text_index(table, "text") is None


def test_there_is_no_index_to_trust_without_one(tmp_path: Path) -> None:
    table = create_table(tmp_path, docs(a="running dogs"))
    assert find_text_index(table, "text") is None
    assert find_vector_index(table, "at") is None


def test_lance_finds_nothing_without_an_index(tmp_path: Path) -> None:
    """Neither rows nor an error: the reason why a text without an index is never asked for in Lance."""
    assert search(create_table(tmp_path, docs(a="running dogs")), "run") == set()


def test_rows_outside_the_index_are_found_with_the_same_analyser(tmp_path: Path) -> None:
    table = with_text_index(create_table(tmp_path, docs(a="running dogs", b="cats", e="", n=None)))
    table = commit_staged(stage_append(table, docs(c="The DOG runs", d="dóg", m=None)))
    index = find_text_index(table, "text")
    assert index is not None
    assert (index.indexed_rows, index.unindexed_rows) == (4, 3)
    assert search(table, "dogs") == {"a", "c", "d"}
    assert search(table, "the") == set()


def test_updated_and_deleted_rows_are_found_as_they_are_now(tmp_path: Path) -> None:
    table = with_text_index(create_table(tmp_path, docs(a="red", b="red", c="red")))
    table = commit_staged(stage_upsert(table, docs(a="blue")))
    table = commit_staged(stage_delete(table, pa.array(["b"])))
    assert search(table, "red") == {"c"}
    assert search(table, "blue") == {"a"}


def test_an_index_of_several_segments_finds_texts_that_are_gone_and_is_not_trusted(tmp_path: Path) -> None:
    """When this fails because nothing stale is found, Lance was repaired: several segments may be trusted."""
    table = with_text_index(create_table(tmp_path, docs(a="red", b="red")))
    table = commit_staged(stage_upsert(table, docs(a="blue")))
    table.native.optimize.optimize_indices(num_indices_to_merge=0)
    table = table.latest()
    assert search(table, "red") == {"a", "b"}, "the old text of `a` is found"
    assert find_text_index(table, "text") is None


def test_the_fuzzy_search_of_lance_misses_rows_outside_of_the_index_and_words_with_accents(
    tmp_path: Path,
) -> None:
    """When this fails, Lance was repaired, and `fuzzy` may use stored indexes."""
    table = with_text_index(create_table(tmp_path, docs(a="ede", b="eda")))
    table = commit_staged(stage_append(table, docs(c="edo")))

    def fuzzy(text: str) -> set[str]:
        query = MatchQuery(text, "text", fuzziness=1, max_expansions=1000)
        hits = table.native.scanner(columns=["_rowid", "_score"], full_text_query=query).to_table()
        return ids(table, hits.column("_rowid"))

    assert fuzzy("ede") == {"a", "b"}, "and not `c`, which is as near as `b`"
    assert analyse("édé") == ["ede"]
    assert fuzzy("édé") == set()


def test_hits_come_with_scores_and_no_more_than_asked_for(tmp_path: Path) -> None:
    table = with_text_index(create_table(tmp_path, docs(a="graph graph", b="graph of things", c="table")))
    row_ids, scores = hits(table, "graph", 1)
    assert ids(table, row_ids) == {"a"}
    assert (scores > 0).all()
    assert len(hits(table, "graph table")[0]) == 3


def test_the_nearest_rows_include_those_outside_of_the_index(tmp_path: Path) -> None:
    table = with_vector_index(create_table(tmp_path, docs(a="x", b="x", c="x")))
    near = pa.table({"id": ["n"], "text": ["x"], "at": [[0.25, 0.0]]}, schema=SCHEMA)
    moved = pa.table({"id": ["a"], "text": ["x"], "at": [[9.0, 0.0]]}, schema=SCHEMA)
    table = commit_staged(stage_upsert(commit_staged(stage_append(table, near)), moved))
    table = commit_staged(stage_delete(table, pa.array(["b"])))
    index = find_vector_index(table, "at")
    assert index is not None
    assert (index.kind, index.indexed_rows, index.unindexed_rows) == ("IVF_FLAT", 1, 2)
    nearest = search_vectors(table, index, "at", np.zeros(2, np.float32), 2)
    assert nearest is not None
    row_ids, vectors = nearest
    assert ids(table, row_ids) == {"n", "c"}
    assert sorted(vectors.to_pylist()) == [[0.25, 0.0], [2.0, 0.0]]


def test_an_index_that_compares_by_angle_is_not_trusted(tmp_path: Path) -> None:
    table = with_vector_index(create_table(tmp_path, docs(a="x", b="x", c="x")), metric="cosine")
    assert find_vector_index(table, "at") is None
