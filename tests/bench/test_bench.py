"""Workloads run in their short form and give every number; how fast they are is not tested."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from bench import writes
from bench.__main__ import main
from bench.measure import AGAIN, AGED, OURS
from bench.social_queries import PARAMETERS
from bench.workloads import KNOWN

INSTALLED = {
    name: importlib.util.find_spec(name) is not None
    for name in ("doltlite", "duckdb", "igraph", "kuzu", "ladybug", "lancedb", "tantivy", "usearch")
}
pytestmark = pytest.mark.bench


def short(name: str, results: Path) -> dict[str, Any]:
    """What one workload tells, after a look at what every workload must tell."""
    assert main(["--short", "--here", "--results", str(results), name]) == 0
    (path,) = results.glob("*.json")
    board = json.loads(path.read_text(encoding="utf-8"))
    ((found, one),) = board["workloads"].items()
    assert found == KNOWN[found].name
    assert len(one["load before"]) == len(one["load after"]) == 3
    for task, parties in one["times"].items():
        assert OURS in parties, task
        for name, seconds in parties.items():
            assert seconds, f"{task}: {name}"
            assert min(seconds) > 0, f"{task}: {name}"
    missing = {name for name, there in INSTALLED.items() if not there}
    assert missing.isdisjoint(name for parties in one["times"].values() for name in parties)
    assert set(one["absent"]) <= missing | {"on Spark", "Spark copies Parquet"}
    page = path.with_suffix(".md").read_text(encoding="utf-8")
    for figure in one["figures"]:
        assert figure["what"] in page
        assert figure["fresh"] >= 0
    return one  # type: ignore[no-any-return]


def beside(one: dict[str, Any], *names: str) -> set[str]:
    """All of ours, and of those named the ones that are installed."""
    return {OURS, AGAIN, AGED} | {name for name in names if INSTALLED[name]}


def test_loads_are_measured_from_parquet_and_from_lines(tmp_path: Path) -> None:
    one = short("W1", tmp_path)
    assert one["facts"]["rows"] == {"Parquet": 1_200, "NDJSON": 1_200}
    parquet, lines = one["times"]["Parquet, local"], one["times"]["NDJSON, local"]
    assert parquet.keys() == beside(one, "ladybug") | {"lance, ready rows"}
    assert lines.keys() == (beside(one, "duckdb") | {"script"}) - {AGED}
    assert one["absent"][0] == "on Spark"
    assert {target["what"] for target in one["unmeasured"]} == {"Parquet, on Spark", "NDJSON, on Spark"}


def test_the_nine_questions_are_measured_warm_and_cold_with_the_memory_of_a_result(tmp_path: Path) -> None:
    one = short("W2", tmp_path)
    warm = [parties for task, parties in one["times"].items() if task.startswith("warm: q")]
    assert len(warm) == len(PARAMETERS)
    for parties in warm:
        assert parties.keys() == beside(one, "ladybug", "kuzu", "duckdb")
    assert one["times"]["first of a process: q1 most followed"].keys() >= {OURS, AGED}
    figures = {(each["what"], each["against"]): each for each in one["figures"]}
    assert (("warm: geometric mean", "ladybug") in figures) == INSTALLED["ladybug"]
    assert figures["memory: paths", "the size of the result"]["at_most"] == 2
    assert one["processor"].keys() == {task for task in one["times"] if task.startswith("warm")}


def test_hops_are_measured_from_one_to_three_and_points_beside_them(tmp_path: Path) -> None:
    one = short("W3", tmp_path)
    for hops in (1, 2, 3):
        for what in ("count", "ids"):
            assert one["times"][f"warm: {hops} hops, {what}"].keys() == beside(one, "ladybug", "igraph")
    assert one["times"]["warm: one person by key"].keys() == beside(one, "ladybug", "duckdb")
    assert one["times"]["first of a process: 2 hops, ids"].keys() == beside(one, "ladybug") - {AGAIN}


def test_writes_are_measured_at_every_depth_beside_the_bare_calls(tmp_path: Path) -> None:
    one = short("W4", tmp_path)
    for tables in (1, 2):
        new, later = (one["times"][writes.task(tables, depth)] for depth in (0, 3))
        assert later.keys() == beside(one, "doltlite", "ladybug") | {"bare calls"}
        assert new.keys() == later.keys() - {AGED}
    # Three commits before, then the warm-up and two rounds with two inserts each.
    assert one["facts"]["rows of both tables by depth"] == {"0": [6, 3], "3": [9, 6]}
    limited = {each["against"]: each["at_most"] for each in one["figures"] if each["at_most"]}
    assert limited == {"bare calls": 1.5, "a fresh graph": 1.3}
    assert not one["unmeasured"]


def test_work_on_a_branch_is_measured_with_few_and_with_many_types(tmp_path: Path) -> None:
    one = short("W5", tmp_path)
    steps = [one["times"][step] for step in ("create", "write", "delete")]
    for name, (whole,) in one["times"]["create, write and delete"].items():
        assert whole == pytest.approx(sum(step[name][0] for step in steps))
    assert steps[0].keys() == {OURS, AGAIN, AGED, "omnigraph, 2 types", "bare calls"}


def test_merges_are_measured_with_changes_on_one_side_and_on_both(tmp_path: Path) -> None:
    one = short("W6", tmp_path)
    assert one["times"].keys() == {"fast-forward, 10 rows", "both sides changed, 10 rows"}
    for parties in one["times"].values():
        assert parties.keys() == beside(one, "doltlite")


def test_diffs_are_measured_between_commits_and_between_branches(tmp_path: Path) -> None:
    one = short("W7", tmp_path)
    assert one["times"].keys() == {"last commit", "branch against main"}
    for parties in one["times"].values():
        assert parties.keys() == beside(one, "doltlite")
    allowed = [each for each in one["figures"] if each["against"].startswith("30 ms")]
    assert [each["at_most"] for each in allowed] == [1, 1]


def test_searches_are_measured_with_their_recall(tmp_path: Path) -> None:
    one = short("W8", tmp_path)
    assert one["times"]["vector"].keys() == beside(one, "lancedb", "usearch")
    assert one["times"]["text"].keys() == beside(one, "lancedb", "tantivy")
    recalls = {each["what"]: each for each in one["figures"] if each["at_least"]}
    assert len(recalls) == 2 * 3, "vectors and texts: fresh, again, and aged"
    assert all(each["fresh"] >= each["at_least"] == 0.98 and each["met"] for each in recalls.values())


def test_many_edges_are_measured_with_their_memory(tmp_path: Path) -> None:
    one = short("W10", tmp_path)
    assert one["facts"]["edges"] == [1_000, 2_000]
    assert one["times"]["1,000 edges, local"].keys() == {OURS, AGAIN, AGED}
    for peak in one["facts"]["bytes of memory at the highest"].values():
        assert peak["total"] >= peak["python"] > 50 * 2**20
    assert ("memory, total, local", "half the edges") in {
        (each["what"], each["against"]) for each in one["figures"]
    }


def test_threads_all_insert_their_share(tmp_path: Path) -> None:
    one = short("threads", tmp_path)
    (parties,) = one["times"].values()
    assert {len(seconds) for seconds in parties.values()} == {2 * 16}, "two rounds of sixteen"


def test_operations_in_a_bucket_are_measured_beside_a_request(tmp_path: Path) -> None:
    one = short("bucket", tmp_path)
    assert {tuple(parties) for parties in one["times"].values()} == {(OURS, "one request")}
    assert len([figure for figure in one["figures"] if figure["against"] == "one writer"]) == 4


def test_publishes_are_measured_with_and_without_a_past(tmp_path: Path) -> None:
    one = short("publish", tmp_path)
    assert one["times"]["publish"].keys() == {
        OURS,
        "omnigraph, after 5 commits",
        "lance appends and commits",
    }
