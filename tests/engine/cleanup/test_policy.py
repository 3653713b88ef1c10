"""How much of the past a policy keeps."""

from __future__ import annotations

from datetime import timedelta

import pytest

from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy, parse_duration
from omnigraph.errors import BadRequest, InvalidValue

MINUTE = 60_000_000
NOW = 1_000 * MINUTE
# Made 60, 30, 20, 5 and 1 minutes ago, so the first was current until 30 minutes ago.
CHAIN = [
    Commit(f"c{number}", "main", number + 1, NOW - ago * MINUTE)
    for number, ago in enumerate((60, 30, 20, 5, 1))
]


@pytest.mark.parametrize(
    ("keep", "older_than", "minimum_age", "kept"),
    [
        (1, None, 0, "c4"),
        (2, None, 0, "c3 c4"),
        (9, None, 0, "c0 c1 c2 c3 c4"),
        (None, "0s", 0, "c4"),
        (None, "2m", 0, "c3 c4"),
        (None, "5m", 0, "c3 c4"),
        (None, "6m", 0, "c2 c3 c4"),
        (None, "1h", 0, "c0 c1 c2 c3 c4"),
        (3, "2m", 0, "c2 c3 c4"),
        (1, "25m", 0, "c1 c2 c3 c4"),
        (1, None, 360, "c2 c3 c4"),
        (None, "2m", 360, "c2 c3 c4"),
        (None, "25m", 360, "c1 c2 c3 c4"),
    ],
)
def test_a_commit_stays_that_is_new_enough_by_number_or_was_current_recently(
    keep: int | None, older_than: str | None, minimum_age: float, kept: str
) -> None:
    stays = CleanupPolicy.of(keep, older_than, minimum_age).kept(CHAIN, NOW)
    assert " ".join(commit.id for commit, one in zip(CHAIN, stays, strict=True) if one) == kept


def test_without_commits_nothing_is_decided() -> None:
    assert CleanupPolicy.of(3, None, 0).kept([], NOW) == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0s", 0), ("90s", 90), ("30m", 1_800), ("12h", 43_200), ("7d", 604_800), (" 2w ", 1_209_600)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(timedelta(seconds=seconds)) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "7 d", "7days", "-1d", "1.5h", "7D", "\u0661d", "1d1h"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(InvalidValue, match="is not a duration"):
        parse_duration(text)


def test_a_policy_says_how_much_to_keep() -> None:
    with pytest.raises(BadRequest, match="needs to know how much of the past to keep"):
        CleanupPolicy.of(None, None, 0)
    with pytest.raises(InvalidValue, match="keep must be at least 1, got 0"):
        CleanupPolicy.of(0, None, 0)
    with pytest.raises(InvalidValue, match="must not be negative"):
        CleanupPolicy.of(None, timedelta(seconds=-1), 0)


@pytest.mark.parametrize(
    ("keep", "older_than", "text"),
    [
        (1, None, "the newest commit of each branch"),
        (5, None, "the newest 5 commits of each branch"),
        (None, "36h", "what was current in the last 36h"),
        (2, "14d", "the newest 2 commits of each branch and what was current in the last 2w"),
        (None, "61s", "what was current in the last 61s"),
    ],
)
def test_a_policy_reads_as_a_sentence(keep: int | None, older_than: str | None, text: str) -> None:
    assert str(CleanupPolicy.of(keep, older_than, 0)) == text
