"""The commits at which merges would start, for histories of any shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from omnigraph.engine.cleanup.bases import merge_bases
from omnigraph.engine.lineage import Commit, head, merge_base
from omnigraph.engine.manifest import EMPTY, State


def state(commits: Mapping[str, Commit]) -> State:
    return replace(EMPTY, commits=commits, head=head(commits.values()))


def grown(random: Random, steps: int) -> dict[str, dict[str, Commit]]:
    """Branches with what each of them shows: commits of its own and inherited ones, never merged ones."""
    first = Commit("c0", "main", 1, 1)
    branches = {"main": {first.id: first}}
    for number in range(1, steps):
        name = random.choice(list(branches))
        shown = branches[name]
        newest = head(shown.values())
        assert newest is not None
        match random.choice(["write", "write", "merge", "merge", "create", "delete"]):
            case "create" if len(branches) < 6:
                branches[f"b{number}"] = dict(shown)
            case "delete" if name != "main" and random.random() < 0.3:
                del branches[name]
            case "merge" if len(branches) > 1:
                other = head(branches[random.choice([one for one in branches if one != name])].values())
                assert other is not None
                made = Commit(f"c{number}", name, newest.version + 1, number * 10, newest.id, other.id)
                shown[made.id] = made
            case _:
                made = Commit(f"c{number}", name, newest.version + 1, number * 10, newest.id)
                shown[made.id] = made
    return branches


@pytest.mark.parametrize("seed", range(25))
def test_none_is_left_out_and_none_is_more_than_a_start(seed: int) -> None:
    states = [state(shown) for shown in grown(Random(seed), 60).values()]
    known = {name: commit for one in states for name, commit in one.commits.items()}
    expected = set()
    for one, other in combinations(states, 2):
        if one.head is None or other.head is None or one.head.id == other.head.id:
            continue
        for commits in (known, {**one.commits, **other.commits}):
            base = merge_base(commits, one.head.id, other.head.id)
            assert base is not None
            expected.add(base.id)
    assert merge_bases(states) == expected


def test_a_branch_alone_or_without_commits_starts_nowhere() -> None:
    only = Commit("c0", "main", 1, 1)
    assert merge_bases([]) == frozenset()
    assert merge_bases([state({"c0": only}), state({})]) == frozenset()


def test_branches_that_have_nothing_in_common_start_nowhere() -> None:
    one, other = Commit("a", "main", 1, 1), Commit("b", "work", 1, 1)
    assert merge_bases([state({"a": one}), state({"b": other})]) == frozenset()
