"""What upkeep by itself costs: nothing for most writes, a few calls once in many."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from omnigraph.engine.upkeep.table_rewrite import MIN_FRAGMENTS
from omnigraph.storage.location import Location
from tests.engine.test_write_costs import ONE, TWO, Warm

DEPTH = 1_000 if os.environ.get("OMNIGRAPH_TORTURE") else 4 * MIN_FRAGMENTS


@pytest.mark.parametrize("text", [ONE, TWO])
def test_after_many_commits_a_write_makes_the_calls_it_made_at_first(tmp_path: Path, text: str) -> None:
    warm = Warm(Location.parse(tmp_path / "g"))
    first = warm.write(text)
    for _ in range(DEPTH):
        warm.write(text)
    # Of writes in a row at most one looks after the tables, and at most one after the manifest.
    assert first in [warm.write(text) for _ in range(4)]


def test_tidying_costs_a_few_calls_once_in_many_writes(tmp_path: Path) -> None:
    warm = Warm(Location.parse(tmp_path / "g"))
    plain = warm.write(ONE)
    extra: Counter[str] = Counter()
    for _ in range(2 * MIN_FRAGMENTS):
        extra += warm.write(ONE) - plain
    tidied = extra["describe_indexes"]
    manifests = extra["plan_compaction"] - tidied
    assert (tidied, manifests <= 3) == (2, True)
    assert extra["commit_compaction"] == extra["rewrite"] == tidied + manifests
    assert extra["merge_rows"] == tidied, "published without a commit"
