"""The commits at which merges would start, for histories of any shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from omnigraph.engine.graph.lineage import Commit, ancestors, find_head
from omnigraph.engine.graph.lineage import merge_bases as bases_between
from omnigraph.engine.graph.manifest import EMPTY_STATE, ManifestState
from omnigraph.engine.maintenance.cleanup.needed_versions import find_merge_bases


def state(commits: Mapping[str, Commit]) -> ManifestState:
    return replace(EMPTY_STATE, commits=commits, head=find_head(commits.values()))


def grow_branches(random: Random, steps: int) -> dict[str, dict[str, Commit]]:
    """Branches with what each of them shows: commits of its own and inherited ones, never merged ones."""
    first = Commit("c0", "main", 1, 1)
    branches = {"main": {first.id: first}}
    for number in range(1, steps):
        name = random.choice(list(branches))
        shown = branches[name]
        newest = find_head(shown.values())
        assert newest is not None
        match random.choice(["write", "write", "merge", "merge", "create", "delete"]):
            case "create" if len(branches) < 6:
                branches[f"b{number}"] = dict(shown)
            case "delete" if name != "main" and random.random() < 0.3:
                del branches[name]
            case "merge" if len(branches) > 1:
                other = find_head(branches[random.choice([one for one in branches if one != name])].values())
                assert other is not None
                made = Commit(f"c{number}", name, newest.version + 1, number * 10, newest.id, other.id)
                shown[made.id] = made
            case _:
                made = Commit(f"c{number}", name, newest.version + 1, number * 10, newest.id)
                shown[made.id] = made
    return branches


@pytest.mark.parametrize("seed", range(25))
def test_none_is_left_out_and_none_is_more_than_a_start(seed: int) -> None:
    states = {name: state(shown) for name, shown in grow_branches(Random(seed), 60).items()}
    known = {name: commit for one in states.values() for name, commit in one.commits.items()}
    tips = {one.head.id for one in states.values() if one.head is not None}
    found, expected = find_merge_bases(states), set[str]()
    while tips:
        pairs = (bases_between(known, [one], [other]) for one, other in combinations(sorted(tips), 2))
        tips = {commit.id for pair in pairs for commit in pair} - expected
        expected |= tips
        tips = expected if tips else set()
    assert found == expected


def test_the_bases_of_several_bases_are_kept() -> None:
    """A merge of the branches merges `l1` and `r1` first, and starts that at `root`."""
    root = Commit("root", "main", 1, 10)
    left, right = Commit("l1", "main", 2, 20, "root"), Commit("r1", "work", 2, 20, "root")
    main = [root, left, Commit("l2", "main", 3, 30, "l1", "r1")]
    work = [root, right, Commit("r2", "work", 3, 30, "r1", "l1")]
    states = {"main": state({one.id: one for one in main}), "work": state({one.id: one for one in work})}
    assert find_merge_bases(states) == {"root", "l1", "r1"}


def test_a_commit_of_a_deleted_branch_is_known_from_the_merge_that_took_it_in() -> None:
    """`x2` had taken in `c2` of main; so `c2` is the base, and neither branch alone shows that."""
    main = {f"c{n}": Commit(f"c{n}", "main", n, n * 10, f"c{n - 1}" if n > 1 else None) for n in (1, 2, 3)}
    taken = {"x2": Commit("x2", "x", 2, 25, "c1", "c2")}
    work = {"c1": main["c1"], "w1": Commit("w1", "work", 2, 30, "c1", "x2")}
    states = {"main": state(main), "work": replace(state(work), merged=taken)}
    assert find_merge_bases(states) == {"c2"}
    assert ancestors({**main, **taken, **work}, ["w1"]).keys() == {"w1", "x2", "c1", "c2"}


def test_a_branch_alone_or_without_commits_starts_nowhere() -> None:
    only = Commit("c0", "main", 1, 1)
    assert find_merge_bases({}) == frozenset()
    assert find_merge_bases({"main": state({"c0": only}), "work": state({})}) == frozenset()


def test_branches_that_have_nothing_in_common_start_nowhere() -> None:
    one, other = Commit("a", "main", 1, 1), Commit("b", "work", 1, 1)
    assert find_merge_bases({"main": state({"a": one}), "work": state({"b": other})}) == frozenset()
