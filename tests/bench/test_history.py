"""What merges and diffs change: both sides equally many people, spread over the table."""

from __future__ import annotations

import numpy as np
import pytest

from bench.history.people import edits
from bench.measure import OURS
from bench.merges import BOTH, FORWARD, Part, _flatness, _growth, task


@pytest.mark.parametrize(("people", "changed"), [(100, 10), (100, 50), (7, 3), (1_000, 1)])
@pytest.mark.parametrize("turn", [0, 1, 8])
def test_both_sides_change_as_many_people_and_never_the_same(people: int, changed: int, turn: int) -> None:
    ours, theirs = edits(people, changed, turn)
    both = np.concatenate([ours.numbers, theirs.numbers])
    assert len(np.unique(both)) == 2 * changed
    assert both.min() >= 0
    assert both.max() < people


def test_changed_people_are_spread_over_all_of_them() -> None:
    edit, _ = edits(1_000_000, 10, 3)
    assert np.diff(edit.numbers).tolist() == [100_000] * 9


def test_sides_that_cannot_be_disjoint_are_refused() -> None:
    with pytest.raises(ValueError, match="two disjoint sides of 6 do not fit into 11 people"):
        edits(11, 6, 0)


def test_every_turn_leaves_ages_of_its_own() -> None:
    ages = [edit.age for turn in range(4) for edit in edits(100, 10, turn)]
    assert len(set(ages)) == len(ages)


def test_figures_say_how_merges_grow_with_the_change_and_with_the_table() -> None:
    seconds = {10: 0.2, 1_000: 0.4}
    times = {task(way, rows): {OURS: [took]} for way in (FORWARD, BOTH) for rows, took in seconds.items()}
    growth = list(_growth([Part(10, (200, 20), 1), Part(1_000, (200,), 1)], times))
    assert [one.against for one in growth] == ["as many times the rows, 10 each"] * 2
    assert [one.fresh for one in growth] == pytest.approx([0.02, 0.02])
    (flat,) = _flatness(times, {task(BOTH, 10): {OURS: [0.1]}})
    assert (flat.what, flat.against, flat.fresh) == ("both sides changed, 10 rows", "a tenth of the table", 2)
