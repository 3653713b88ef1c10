"""Merges, diffs and work on branches are measured on equal data, and what both databases did is compared."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import merges
from bench.history.people import edits
from bench.merges import Plan, require_equal

ROOT = Path(__file__).resolve().parents[2]
DOLTLITE = importlib.util.find_spec("doltlite") is not None


def short(name: str, results: Path) -> tuple[dict[str, Any], str]:
    command = [sys.executable, "-m", "bench", "--short", "--results", str(results), name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = results.iterdir()
    return json.loads(path.read_text(encoding="utf-8")), done.stdout


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


def test_databases_that_differ_afterwards_are_refused() -> None:
    require_equal({"a": (1, 2), "b": (1, 2)})
    with pytest.raises(AssertionError, match="all must have the same"):
        require_equal({"a": (1, 2), "b": (1, 3)})


def test_notes_say_how_merges_grow_with_the_change_and_with_the_table() -> None:
    medians = {
        f"{who}, {way}, {changed} of {people}": seconds
        for way in (merges.FORWARD, merges.BOTH)
        for who, changed, people, seconds in (
            ("omnigraph", "10", "200", 0.2),
            ("omnigraph", "10", "100", 0.1),
            ("omnigraph", "1,000", "200", 0.398),
            ("doltlite", "1,000", "200", 0.1),
        )
    }
    notes = list(merges.notes([Plan(10, (200, 100), 1), Plan(1_000, (200,), 1)], medians))
    assert "fast-forward, 10 rows: 200 people / 100: 2.00" in notes
    assert "both sides changed, 1,000 rows / 10: 1.99; 200 us for each more" in notes
    assert "fast-forward, 1,000 rows: omnigraph / doltlite: 4.0" in notes
    assert "both sides changed, 1,000 rows: omnigraph / doltlite: 4.0 (at most 15)" in notes


@pytest.mark.bench
def test_merges_are_measured_with_changes_on_one_side_and_on_both(tmp_path: Path) -> None:
    kept, shown = short("merges", tmp_path)
    names = [timing["name"] for timing in kept["timings"]]
    for way in ("fast-forward", "both sides changed"):
        assert f"omnigraph, {way}, 10 of 2,000" in names
        assert (f"doltlite, {way}, 10 of 2,000" in names) == DOLTLITE
        assert (f"{way}, 10 rows: omnigraph / doltlite: " in shown) == DOLTLITE
    assert ("doltlite is not installed, and so not measured" in shown) != DOLTLITE


@pytest.mark.bench
def test_diffs_are_measured_between_commits_and_between_branches(tmp_path: Path) -> None:
    kept, shown = short("diffs", tmp_path)
    names = [timing["name"] for timing in kept["timings"]]
    for what in ("last commit", "branch against main"):
        assert f"omnigraph, {what}, 1 of 2,000" in names
        assert kept["targets"][f"omnigraph, {what}, 1 of 2,000"] == 0.03
        assert (f"{what}: omnigraph / doltlite " in shown) == DOLTLITE


@pytest.mark.bench
def test_work_on_a_branch_is_measured_with_few_and_with_many_types(tmp_path: Path) -> None:
    kept, shown = short("forks", tmp_path)
    medians = kept["medians"]
    for types in (2, 140):
        steps = [medians[f"{step}, {types} types"] for step in ("create", "write", "delete")]
        assert medians[f"all three, {types} types"] == pytest.approx(sum(steps))
    assert "all three: 140 types / 2: " in shown
