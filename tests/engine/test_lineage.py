from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from omnigraph.engine.graph.lineage import (
    Commit,
    find_commit_at,
    find_head,
    merge_bases,
    newest_first,
    parents,
    walk_first_parents,
)


def commit(name: str, version: int, *parents: str, branch: str = "main", created_at: int = 0) -> Commit:
    parent, merged = (*parents, None, None)[:2]
    return Commit(name, branch, version, created_at or version * 10, parent, merged)


def graph(*commits: Commit) -> dict[str, Commit]:
    return {each.id: each for each in commits}


def newest(*commits: Commit) -> str | None:
    found = find_head(commits)
    return found.id if found else None


def base(commits: dict[str, Commit], ours: str, theirs: str) -> str | None:
    found = merge_bases(commits, [ours], [theirs])
    return found[0].id if found else None


FORKED = graph(
    commit("a", 1),
    commit("b", 2, "a"),
    commit("m", 3, "b"),
    commit("w", 3, "b", branch="work"),
    commit("x", 4, "w", branch="work"),
)


# --- heads and chains ------------------------------------------------------------------------------


def test_the_head_is_the_newest_version_then_time_then_id() -> None:
    assert find_head([]) is None
    assert newest(commit("z", 1, created_at=99), commit("a", 2, created_at=1)) == "a"
    assert newest(commit("z", 2, created_at=1), commit("a", 2, created_at=2)) == "a"
    assert newest(commit("a", 2, created_at=2), commit("b", 2, created_at=2)) == "b"


def test_a_log_is_newest_first_whatever_the_order_of_rows() -> None:
    commits = [commit(f"c{n}", n) for n in range(1, 20)]
    shuffled = commits.copy()
    Random(7).shuffle(shuffled)
    assert newest_first(shuffled) == commits[::-1]


def test_first_parents_ends_at_what_is_not_known() -> None:
    commits = graph(commit("c", 3, "b"), commit("b", 2, "gone"))
    assert [found.id for found in walk_first_parents(commits, "c")] == ["c", "b"]
    assert list(walk_first_parents(commits, "gone")) == []
    assert list(walk_first_parents(commits, None)) == []


def test_first_parents_never_follows_the_merged_side() -> None:
    commits = FORKED | graph(commit("n", 5, "m", "x"))
    assert [found.id for found in walk_first_parents(commits, "n")] == ["n", "m", "b", "a"]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [(9, None), (10, "a"), (11, "a"), (19, "a"), (20, "b"), (29, "b"), (30, "m"), (10**18, "m"), (-5, None)],
)
def test_a_moment_means_the_newest_commit_not_after_it(moment: int, expected: str | None) -> None:
    found = find_commit_at(FORKED, "m", moment)
    assert (found.id if found else None) == expected


def test_a_moment_is_looked_up_on_the_branch_asked_about() -> None:
    found = find_commit_at(FORKED, "x", 35)
    assert found is not None
    assert found.id == "w"


# --- merge base ------------------------------------------------------------------------------------


def test_the_base_of_a_fork_is_where_it_began() -> None:
    assert base(FORKED, "m", "x") == base(FORKED, "x", "m") == "b"


def test_the_base_with_an_ancestor_is_the_ancestor_and_with_itself_itself() -> None:
    assert base(FORKED, "m", "a") == base(FORKED, "a", "m") == "a"
    assert base(FORKED, "x", "x") == "x"


def test_a_merge_moves_the_base_to_what_was_merged() -> None:
    commits = FORKED | graph(
        commit("n", 4, "m", "x"), commit("o", 5, "n"), commit("y", 5, "x", branch="work")
    )
    assert base(commits, "o", "y") == "x"


def test_a_criss_cross_has_one_answer_from_both_sides() -> None:
    commits = graph(
        commit("root", 1),
        commit("l1", 2, "root"),
        commit("r1", 2, "root", branch="work"),
        commit("l2", 3, "l1", "r1"),
        commit("r2", 3, "r1", "l1", branch="work"),
    )
    assert {one.id for one in merge_bases(commits, ["l2"], ["r2"])} == {"l1", "r1"}
    assert base(commits, "l2", "r2") == base(commits, "r2", "l2") == "r1"


def test_fewer_steps_do_not_make_an_older_ancestor_the_base() -> None:
    """The nearest by steps is `c1`, by way of the merge of `d`; but `c4` descends from it."""
    commits = graph(
        commit("c1", 1),
        *(commit(f"c{n}", n, f"c{n - 1}") for n in range(2, 9)),
        commit("d", 2, "c1", branch="d"),
        commit("m", 9, "c8", "d"),
        commit("b1", 2, "c1", "c4", branch="b"),
        commit("b2", 3, "b1", branch="b"),
    )
    assert base(commits, "m", "b2") == base(commits, "b2", "m") == "c4"


def ancestors_of(commits: dict[str, Commit], start: str) -> set[str]:
    """A commit and all its ancestors, by plain recursion over sets."""
    found, new = set(), {start}
    while new:
        found |= new
        new = {parent for one in new for parent in parents(commits[one])} - found
    return found


@pytest.mark.parametrize("seed", range(40))
def test_bases_are_the_common_ancestors_without_a_common_descendant(seed: int) -> None:
    random = Random(seed)
    commits: dict[str, Commit] = {"c0": commit("c0", 1)}
    for number in range(1, 40):
        recent = list(commits)[-random.randint(1, 12) :]
        made = random.sample(recent, min(len(recent), random.choice([1, 1, 2])))
        commits[f"c{number}"] = commit(f"c{number}", number, *made)
    names = list(commits)
    for _ in range(60):
        ours, theirs = random.choice(names), random.choice(names)
        common = ancestors_of(commits, ours) & ancestors_of(commits, theirs)
        best = {one for one in common if not any(one in ancestors_of(commits, two) - {two} for two in common)}
        assert {one.id for one in merge_bases(commits, [ours], [theirs])} == best


@pytest.mark.parametrize("seed", range(10))
def test_the_bases_of_many_tips_are_those_of_every_two(seed: int) -> None:
    random = Random(seed)
    commits: dict[str, Commit] = {"c0": commit("c0", 1)}
    for number in range(1, 60):
        recent = list(commits)[-random.randint(1, 12) :]
        made = random.sample(recent, min(len(recent), random.choice([1, 1, 2])))
        commits[f"c{number}"] = commit(f"c{number}", number, *made)
    tips = random.sample(list(commits), 7)
    pairs = (merge_bases(commits, [one], [two]) for one in tips for two in tips if one != two)
    assert set(merge_bases(commits, *([one] for one in tips))) == {one for pair in pairs for one in pair}


def test_no_common_ancestor_and_unknown_commits_have_no_base() -> None:
    commits = graph(commit("a", 1), commit("b", 2))
    assert base(commits, "a", "b") is None
    assert base(commits, "a", "unknown") is None
    assert base(commits, "unknown", "unknown") is None


def test_a_merged_parent_of_a_deleted_branch_does_not_hide_the_base() -> None:
    commits = FORKED | graph(commit("n", 4, "m", "deleted"))
    assert base(commits, "n", "x") == "b"


def deep(length: int) -> dict[str, Commit]:
    left = {f"l{n}": commit(f"l{n}", n, *([f"l{n - 1}"] if n else ["root"])) for n in range(length)}
    right = {f"r{n}": commit(f"r{n}", n, *([f"r{n - 1}"] if n else ["root"])) for n in range(length)}
    return {"root": commit("root", 0, created_at=1), **left, **right}


@pytest.mark.parametrize("ask", [base, lambda c, a, b: base(c, b, a)])
def test_long_histories_need_no_deep_stack(ask: Callable[[dict[str, Commit], str, str], str | None]) -> None:
    assert ask(deep(5000), "l4999", "r4999") == "root"
