"""Which fragments are put together: seldom, in proportion to what came, and enough to keep them few."""

from __future__ import annotations

from random import Random

import pytest

from omnigraph.engine.upkeep.table_rewrite import MIN_FRAGMENTS, TIERS, find_crowded_runs, find_newest_run
from omnigraph.storage.upkeep import TARGET_ROWS


class Fragments:
    """A table's fragments as writes and upkeep leave them, and how many rows were written again."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.written = 0
        self.rewritten = 0
        self.most = 0

    def write(self, rows: int) -> None:
        self.rows.append(rows)
        self.written += rows
        for run in reversed(find_crowded_runs(self.rows)):
            merged = sum(self.rows[run.start : run.stop])
            self.rows[run.start : run.stop] = [merged]
            self.rewritten += merged
        self.most = max(self.most, len(self.rows))


@pytest.mark.parametrize("rows", [1, 20, 300, 5_000])
def test_writes_of_one_size_keep_fragments_few_at_a_cost_that_follows_them(rows: int) -> None:
    table = Fragments()
    for _ in range(20_000):
        table.write(rows)
    whole = table.written // TARGET_ROWS
    assert table.most <= TIERS[-1].spare + 1 + whole
    assert table.rewritten <= 15 * table.written


def test_writes_of_any_size_keep_fragments_few_at_a_cost_that_follows_them() -> None:
    random, table = Random(7), Fragments()
    for _ in range(20_000):
        table.write(int(10 ** random.uniform(0, 5)))
    whole = sum(rows >= TARGET_ROWS for rows in table.rows)
    assert len(table.rows) <= TIERS[-1].spare + 2 * whole + 1
    assert table.rewritten <= 15 * table.written


@pytest.mark.parametrize("large", [1_000, 100_000, TARGET_ROWS - 1])
def test_a_large_fragment_is_not_written_again_because_small_ones_came(large: int) -> None:
    table = Fragments()
    table.write(large)
    for _ in range(200):
        table.write(1)
    assert table.rows[0] == large
    assert table.rewritten < 200 * MIN_FRAGMENTS


def test_small_fragments_between_large_ones_are_put_together_too() -> None:
    rows = [*[1] * 15, TARGET_ROWS, *[1] * 15]
    assert find_crowded_runs(rows) == [range(15), range(16, 31)]


def test_few_fragments_are_left_alone() -> None:
    assert find_crowded_runs([1] * MIN_FRAGMENTS) == []
    assert find_crowded_runs([1] * (MIN_FRAGMENTS + 1)) == [range(MIN_FRAGMENTS + 1)]


def test_fragments_without_small_neighbours_are_left_alone() -> None:
    assert find_crowded_runs([1, TARGET_ROWS] * 100) == []


# --- tables that only ever grow, a little at a time ------------------------------------------------


@pytest.mark.parametrize("sizes", [[3], [2, 2, 2, 400]], ids=["even", "with large ones"])
def test_the_newest_are_put_together_at_a_cost_that_does_not_follow_what_was_there(sizes: list[int]) -> None:
    rows, most, left = [20], 16, 0
    written = rewritten = 0
    for turn in range(20_000):
        rows.append(sizes[turn % len(sizes)])
        written += rows[-1]
        if len(rows) > most:
            chosen = find_newest_run(rows, most // 2)
            rows[chosen.start :] = [sum(rows[chosen.start :])]
            rewritten += rows[-1]
            left = max(left, len(rows))
    assert left <= most // 2 + 2
    assert rewritten <= 25 * written, "a row is written again a few times for each step"
    assert sum(rows) == written + 20


def test_of_a_small_table_all_fragments_are_put_together() -> None:
    assert find_newest_run([5, *[2] * 16], 8) == range(17)
    assert find_newest_run([1, 1], 8) == range(2)
    assert find_newest_run([], 8) == range(0)
