"""A handle that stays warm while the graph moves gives the answers of one that was just opened."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from random import Random
from threading import Barrier
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.query.read_cache import shared_cache
from omnigraph.query.result import Result
from omnigraph.query.rows import Rows
from omnigraph.query.search.text_index import TextIndex
from tests.examples import EXAMPLES
from tests.query.generate import CATALOG, Query, queries
from tests.query.moving import QUERIES, STEPS, Moving, moving, node_line
from tests.query.small_limits import other_ways

Kept = TypeVar("Kept")

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
walks = settings(
    max_examples=max(2, EXAMPLES // 100),
    phases=PHASES if EXAMPLES <= 1000 else [*PHASES, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
STEP = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 2**16), st.booleans())


@pytest.mark.fuzz
@pytest.mark.parametrize("ways", ["few rows", "as for many rows"])
@walks
@given(st.lists(STEP, min_size=10, max_size=16), st.lists(queries(), min_size=2, max_size=4))
def test_a_warm_handle_shows_every_state(
    ways: str, steps: list[tuple[str, int, bool]], drawn: list[Query]
) -> None:
    shared_cache().forget()
    with nullcontext() if ways == "few rows" else other_ways(), moving() as graph:
        asked = [*QUERIES, *drawn]
        graph.check(asked)
        for kind, seed, reads in steps:
            graph.step(kind, seed)
            if reads:  # else several versions are skipped
                graph.check(asked)
                graph.check_past(QUERIES, seed)
        graph.check(asked)
        graph.check_cold(QUERIES)


def edge(name: str, source: str, target: str, number: int) -> str:
    ends = {"from": source, "to": target}
    return json.dumps({"edge": name, **ends, "data": {"id": f"back{number}"}})


def cached_rows(graph: Moving, key: str) -> Rows:
    """The rows of a table as the warm handle knows them."""
    version = graph.graph.snapshot().tables[key].version
    kept = [entry.value for entry in shared_cache()._entries.values() if isinstance(entry.value, Rows)]
    found = [rows for rows in kept if (rows.key, rows.table.version) == (key, version)]
    assert len(found) == 1
    return found[0]


def test_rows_grow_by_small_changes_until_too_many_positions_are_dead() -> None:
    """Both happen here, and neither shows in an answer."""
    shared_cache().forget()
    ways = Counter[str]()
    with moving() as graph:
        graph.check(QUERIES[::2])
        for seed in range(12):
            graph.touch(f"t{seed % 5}", Random(seed))
            graph.check(QUERIES[::2])
            rows = cached_rows(graph, "node:Thing")
            assert rows.live_count == len(graph.states["main"].nodes["Thing"])
            ways["grown" if rows.growth else "rebuilt"] += 1
    assert ways["grown"] > 5
    assert ways["rebuilt"] >= 1


@pytest.mark.parametrize("unread", [0, 3])
def test_a_node_that_comes_back_has_its_new_edges_and_none_of_the_old(unread: int) -> None:
    shared_cache().forget()
    with moving() as graph:
        for seed in range(2):
            graph.check(QUERIES)
            graph.graph.mutate('query q() { delete Thing where k = "t2" }')
            graph.states["main"].delete_node(CATALOG, "Thing", "t2")
            for more in range(unread):
                graph.touch("t5", Random(more))
            if not unread:
                graph.check(QUERIES)
            graph._merge([node_line("Thing", "t2", Random(seed))], "main")
            graph._merge([edge("Knows", "t2", f"t{seed}", seed), edge("Likes", "t7", "t2", seed)], "main")
        graph.check(QUERIES)
        graph.check_cold(QUERIES)


def test_versions_that_are_read_backwards_keep_their_rows() -> None:
    shared_cache().forget()
    with moving() as graph:
        for seed in range(3):
            graph.step("update nodes", seed)
            graph.step("merge edges", seed)
        for commit, state in [*graph.past[::-1], *graph.past, *graph.past[::2]]:
            for query in QUERIES[:9]:
                graph.require(query, state, commit=commit)


WRITERS = """\
node Note {
    title: String @key
    text: String
}
edge Follows: Note -> Note
"""
NOTE = "query q($t: String) { match { $n: Note  $n.title = $t } return { $n.title, $n.text } }"
WORD = 'query q() { match { $n: Note } return { $n.title } order { bm25($n.text, "common") } limit 3 }'
NEXT = "query q($t: String) { match { $n: Note  $n.title = $t  $n follows $m } return { $m.title } }"
ADD = 'query q($t: String) { insert Note { title: $t, text: "common" } }'


def load_notes(at: Path) -> og.Graph:
    graph = og.init(at, schema=WRITERS)
    notes = [{"title": f"n{number}", "text": f"common w{number}"} for number in range(50)]
    graph.load(notes, type="Note", mode="append")
    graph.load([{"from": "n1", "to": "n2"}], type="Follows", mode="append")
    shared_cache().forget()
    graph.query(WORD)
    return graph


def cached_values(kind: type[Kept]) -> list[Kept]:
    return [entry.value for entry in shared_cache()._entries.values() if isinstance(entry.value, kind)]


def test_reads_at_one_time_after_a_write_share_what_they_make(tmp_path: Path) -> None:
    """Rows that two reads grow are numbered twice, and of what is derived from them one half is lost."""
    with load_notes(tmp_path / "notes.omni") as graph, ThreadPoolExecutor(6) as threads:
        for number in range(8):
            new, together = f"new{number}", Barrier(6)
            graph.mutate(ADD, {"t": new})

            def read(which: int, new: str = new, together: Barrier = together) -> Result:
                together.wait()
                return graph.query((NOTE, WORD, NEXT)[which % 3], None if which % 3 == 1 else {"t": new})

            found = [one.rows() for one in threads.map(read, range(6))]
            assert found[0] == [{"n.title": new, "n.text": "common"}]
            assert len(found[1]) == 3
            version = graph.snapshot().tables["node:Note"].version
            (rows,) = [
                one for one in cached_values(Rows) if (one.key, one.table.version) == ("node:Note", version)
            ]
            keys = [key for key in shared_cache()._entries if isinstance(key, tuple)]
            text = (*rows.identity, "text", "text")
            assert len([key for key in keys if key[: len(text)] == text]) == 1
            assert len([key for key in keys if "linked" in key and rows.identity in key]) == 1


def test_a_text_index_grows_over_versions_that_were_read_without_it(tmp_path: Path) -> None:
    with load_notes(tmp_path / "notes.omni") as graph:
        (whole,) = cached_values(TextIndex)
        for number in range(5):
            graph.mutate(ADD, {"t": f"new{number}"})
            graph.query(NOTE, {"t": f"new{number}"})
        graph.query(WORD)
        newest = max(cached_values(TextIndex), key=lambda index: index.count)
    assert newest.count == 55
    assert newest.runs[0] is whole.runs[0]
