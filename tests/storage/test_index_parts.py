"""Indexes built in parts or piece by piece answer as those that were built at one go."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileSession
from lance.query import MatchQuery
from numpy.typing import NDArray

from omnigraph.errors import StorageFailure
from omnigraph.storage import index_parts
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.index_parts import BTREE, IVF_FLAT, BuiltPart, IndexPart, build_part, prepare_part
from omnigraph.storage.indexes import (
    IndexExtension,
    IndexSpec,
    catch_up_text_indexes,
    read_coverage,
    stage_extensions,
    stage_indexes,
    text_index_spec,
)
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_append
from omnigraph.storage.tables import Table, Tables, storage_options
from omnigraph.storage.upsert import stage_upsert

SIZE = 300
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("num", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("at", pa.list_(pa.float32(), 8)),
    ]
)
NUM, TEXT = IndexSpec("num", BTREE, "num_idx"), text_index_spec("text", "text_idx")
AT = IndexSpec("at", IVF_FLAT, "at_idx", {"metric": "L2", "num_partitions": 3})


def rows(first: int, word: str, *, vectors: bool = True) -> pa.Table:
    numbers = range(first, first + SIZE)
    values = np.random.default_rng(first).normal(size=(SIZE, 8)).astype(np.float32)
    return pa.table(
        {
            "id": [f"k{number}" for number in numbers],
            "num": list(numbers),
            "text": [f"{word} under tree {number % 7}" for number in numbers],
            "at": values.tolist() if vectors else [None] * SIZE,
        },
        schema=SCHEMA,
    )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return create_filled(Location.parse(tmp_path / "docs"))


def create_filled(at: Location) -> Table:
    """Four fragments, the second of them without vectors; some rows of the first are in the last one."""
    made = Tables().create(at, SCHEMA, primary_key="id")
    made = commit_staged(stage_append(made, rows(0, "walking")))
    made = commit_staged(stage_append(made, rows(SIZE, "swimming", vectors=False)))
    made = commit_staged(stage_append(made, rows(2 * SIZE, "flying")))
    return commit_staged(stage_upsert(made, changed_rows(100, "climbing")))


def changed_rows(first: int, word: str) -> pa.Table:
    """Rows that are stored already, with other values."""
    old = rows(first, word)
    return old.set_column(1, "num", pa.array([number + 10_000 for number in old["num"].to_pylist()])).slice(
        0, 50
    )


def elsewhere(table: Table, parts: Sequence[IndexPart]) -> Iterator[BuiltPart]:
    """Parts that came from another process and go back there, the last one first."""
    for part in reversed(parts):
        yield pickle.loads(pickle.dumps(build_part(table, pickle.loads(pickle.dumps(part)))))


def texts(table: Table, word: str) -> dict[str, float]:
    found = table.native.scanner(
        columns=["id", "_score"], full_text_query=MatchQuery(word, "text")
    ).to_table()
    names = found["id"].to_pylist()
    assert len(names) == len(set(names)), "no row is found twice"
    return dict(zip(names, found["_score"].to_pylist(), strict=True))


def nearest(table: Table, query: NDArray[np.float32], *, indexed: bool) -> dict[str, float]:
    asked = {"column": "at", "q": query, "k": 120, "nprobes": 3, "metric": "L2", "use_index": indexed}
    found = table.native.scanner(columns=["id", "_distance"], nearest=asked).to_table()
    assert found.num_rows == len(set(found["id"].to_pylist())) == 120
    return dict(zip(found["id"].to_pylist(), found["_distance"].to_pylist(), strict=True))


def require_exact_neighbours(table: Table) -> None:
    for number in (0, 120, 2 * SIZE + 5):
        query = np.array(rows(number, "x")["at"][0].as_py(), np.float32)
        expected = nearest(table, query, indexed=False)
        assert nearest(table, query, indexed=True) == pytest.approx(expected, abs=1e-4)


def test_parts_become_one_index_that_answers_like_one_built_at_one_go(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = commit_staged(stage_indexes(table, [NUM, TEXT, AT]))
    words = {word: texts(whole, word) for word in ("walk", "climb", "swim", "tree")}
    monkeypatch.setattr(index_parts, "_ROWS_PER_PART", SIZE)
    monkeypatch.setattr(index_parts, "_VECTOR_BYTES_PER_PART", SIZE * 8 * 4)
    parted = commit_staged(stage_indexes(whole, [NUM, TEXT, AT], elsewhere))
    stored = read_coverage(parted)
    assert {name: (one.segments, one.is_complete) for name, one in stored.items()} == dict.fromkeys(
        ("num_idx", "text_idx", "at_idx"), (1, True)
    )
    assert {word: texts(parted, word) for word in words} == words
    assert len(words["walk"]) == SIZE - 50
    assert [parted.count(where) for where in ("num >= 100 AND num < 150", "num >= 10000")] == [0, 50]
    require_exact_neighbours(parted)


def test_nothing_is_left_of_the_parts(shared_root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_filled(shared_root / "docs")
    monkeypatch.setattr(index_parts, "_ROWS_PER_PART", 1)
    monkeypatch.setattr(index_parts, "_VECTOR_BYTES_PER_PART", 1)
    built: list[str] = []

    def noted(table: Table, parts: Sequence[IndexPart]) -> Iterator[BuiltPart]:
        for part in elsewhere(table, parts):
            built.append(part.uuid)
            yield part

    after = commit_staged(stage_indexes(table, [NUM, TEXT, AT], noted))
    assert len(built) == 12
    folder = LanceFileSession(table.uri, storage_options=storage_options(table.location))
    folders = {path.split("/")[1] for path in folder.list("_indices")}
    assert folders == {part.uuid for one in read_coverage(after).values() for part in one.parts}


def test_segments_beside_older_ones_answer_for_rows_that_were_changed_since(table: Table) -> None:
    indexed = commit_staged(stage_indexes(table, [NUM, AT]))
    later = commit_staged(stage_upsert(indexed, changed_rows(200, "sailing")))
    later = commit_staged(stage_append(later, rows(3 * SIZE, "driving")))
    outside = (
        frozenset(int(one.fragment_id) for one in later.native.get_fragments())
        - read_coverage(indexed)["num_idx"].covered
    )
    both = commit_staged(stage_extensions(later, [IndexExtension(NUM, outside), IndexExtension(AT, outside)]))
    assert {name: (one.segments, one.is_complete) for name, one in read_coverage(both).items()} == {
        "num_idx": (2, True),
        "at_idx": (2, True),
    }
    assert [both.count(where) for where in ("num >= 200 AND num < 250", "num >= 10000")] == [0, 100]
    require_exact_neighbours(both)


def test_rows_without_vectors_are_covered_by_a_segment_of_nothing(table: Table) -> None:
    first, empty = (int(one.fragment_id) for one in table.native.get_fragments()[:2])
    table = commit_staged(stage_extensions(table, [IndexExtension(AT, frozenset({first}))]))
    nothing = IndexSpec("at", IVF_FLAT, "at_idx", {"metric": "L2", "num_partitions": 0})
    table = commit_staged(stage_extensions(table, [IndexExtension(nothing, frozenset({empty}))]))
    assert read_coverage(table)["at_idx"].covered == {first, empty}
    require_exact_neighbours(table)


def test_a_text_index_takes_in_new_texts_and_forgets_old_ones(table: Table) -> None:
    indexed = commit_staged(stage_indexes(table, [TEXT]))
    later = commit_staged(stage_upsert(indexed, changed_rows(200, "sailing")))
    later = commit_staged(stage_append(later, rows(3 * SIZE, "driving")))
    caught_up = catch_up_text_indexes(later, ["text_idx"])
    stored = read_coverage(caught_up)["text_idx"]
    assert (caught_up.version, stored.segments, stored.is_complete) == (later.version + 1, 1, True)
    rebuilt = commit_staged(stage_indexes(caught_up, [TEXT]))
    for word in ("walk", "climb", "sail", "drive", "tree"):
        assert texts(caught_up, word) == pytest.approx(texts(rebuilt, word), rel=1e-5)
    assert len(texts(caught_up, "walk")) == SIZE - 100


def test_a_text_index_that_is_completed_on_an_old_version_is_reported_as_displaced(table: Table) -> None:
    indexed = commit_staged(stage_indexes(table, [TEXT]))
    later = commit_staged(stage_append(indexed, rows(3 * SIZE, "driving")))
    commit_staged(stage_append(later, rows(4 * SIZE, "riding")))
    with pytest.raises(StorageFailure) as caught:
        catch_up_text_indexes(later, ["text_idx"])
    assert caught.value.kind == TableFailureKind.DISPLACED


def test_lance_does_not_look_for_centres_among_fragments_with_deleted_rows(table: Table) -> None:
    """With one row of 100,000 deleted it takes fifty times as long, and in large fragments for ever."""
    changed_one, *_, last = (int(one.fragment_id) for one in table.native.get_fragments())
    given = {
        chosen: "ivf_centroids" in prepare_part(table, part_of(chosen)).options
        for chosen in (changed_one, last)
    }
    assert given == {changed_one: True, last: False}
    assert len(prepare_part(table, part_of(changed_one)).options["ivf_centroids"]) == 3


def part_of(fragment: int) -> IndexPart:
    return IndexPart(AT.column, AT.type, AT.name, (fragment,), False, AT.options)
