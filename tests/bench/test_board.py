"""The scoreboard: one file with all of a run, and a page that rounds nothing in our favour."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from bench import report
from bench.__main__ import main
from bench.board import last_complete, measure_board
from bench.measure import (
    AGAIN,
    AGED,
    LIMIT,
    OURS,
    PEER,
    Figure,
    Result,
    geometric_means,
    ratio,
    require_equal,
    rotate,
    same_answers,
    setting,
    time_in_turns,
)
from bench.plots import draw_board
from bench.targets import TARGETS, Target, find_unmeasured, target_of
from bench.workloads import BOARD, KNOWN, Workload, _judge, find_workloads

RESULT = Result(
    times={
        "one row into 1 table, after 5 commits": {
            OURS: [1.0, 9.0, 2.0],
            AGAIN: [2.2],
            AGED: [2.5],
            "bare calls": [1.6],
            "doltlite": [4.0, 1.0, 8.0],
        }
    },
    limits=("bare calls",),
    facts={"rounds": 3, "stages": {"a": 1}},
    absent=("ladybug",),
)


def make_record(workload: Workload, size: str) -> dict[str, Any]:
    """A record of made-up numbers."""
    figures = RESULT.all_figures()
    return {
        **RESULT.to_json(),
        "figures": list(_judge(workload.name, figures)),
        "noise": RESULT.noise(),
        "unmeasured": [],
    }


@pytest.fixture
def board(tmp_path: Path) -> dict[str, Any]:
    *_, last = measure_board([KNOWN["W4"], KNOWN["W5"]], "quick", make_record, tmp_path / "board-1.json")
    return last


def test_a_figure_is_the_ratio_of_medians_fresh_and_aged() -> None:
    bare, peer, past = RESULT.all_figures()
    task = "one row into 1 table, after 5 commits"
    assert bare == Figure(task, "bare calls", 2.0 / 1.6, 2.5 / 1.6, LIMIT)
    assert peer == Figure(task, "doltlite", 0.5, 0.625, PEER)
    assert past == Figure(task, "a fresh graph", 1.25)
    assert RESULT.noise() == {task: 1.1}


def test_means_of_ratios_are_geometric() -> None:
    result = Result(
        {"w: a": {OURS: [1.0], "x": [2.0]}, "w: b": {OURS: [8.0], "x": [1.0]}, "c": {OURS: [1.0]}}
    )
    (mean,) = geometric_means(result, "w: ", "mean")
    assert (mean.what, mean.against, mean.kind) == ("w: mean", "x", PEER)
    assert mean.fresh == pytest.approx(2.0)


def test_the_worse_of_fresh_and_aged_decides() -> None:
    target = Target("W4", "*", "x", 1.5)
    assert target.met(Figure("t", "x", 1.5, 1.4))
    assert not target.met(Figure("t", "x", 1.0, 1.5001))
    assert not target.met(Figure("t", "x", 1.5001))
    assert Target("W8", "*", "x", at_least=0.98).met(Figure("t", "x", 0.98))
    assert not Target("W8", "*", "x", at_least=0.98).met(Figure("t", "x", 0.9799))


def test_every_target_has_one_limit_and_a_workload_that_is_run() -> None:
    for target in TARGETS:
        assert (target.at_most is None) != (target.at_least is None), target
        assert target.workload in KNOWN
    assert {target.workload for target in TARGETS} >= {workload.name for workload in BOARD}


def test_a_target_without_a_figure_is_named() -> None:
    figures = [Figure("both sides changed, 1,000 rows", "doltlite", 20.0, kind=PEER)]
    assert target_of("W6", figures[0]) == Target("W6", "both sides changed, 1,000 rows", "doltlite", 15.0)
    assert target_of("W7", figures[0]) is None
    assert [one.against for one in find_unmeasured("W6", figures)] == [
        "as many times the rows, *",
        "a tenth of the table",
    ]


def test_a_run_tells_the_machine_the_versions_and_the_load(board: dict[str, Any], tmp_path: Path) -> None:
    assert json.loads((tmp_path / "board-1.json").read_text(encoding="utf-8")) == json.loads(
        json.dumps(board)
    )
    assert board["machine"]["cores"] >= 1
    assert board["machine"]["memory bytes"] > 2**28
    assert board["versions"]["omnigraph"]
    assert board["versions"].keys() >= {"ladybug", "doltlite", "duckdb", "spark", "lance", "lancedb"}
    assert board["commit"]
    assert list(board["workloads"]) == ["W4", "W5"]


def test_the_page_says_where_we_lose_and_what_was_not_measured(board: dict[str, Any]) -> None:
    page = report.page(board, {"W4": "benchmarks/W4.svg"})
    # The bare calls at most 1.5 times: 1.25 fresh, 1.5625 aged, rounded up.
    assert (
        "| one row into 1 table, after 5 commits | bare calls | 1.25 | 1.57 | at most 1.5 | target missed |"
        in page
    )
    assert "| bare calls | physical limit | 1.25 | 1.57 | 1.10 | at most 1.5 | **no**, within noise |" in page
    assert "| a fresh graph | ourselves | 1.25 |  | 1.10 | at most 1.3 | yes, within noise |" in page
    assert "1 of 2 figures that have a target meet it." in page
    assert "This was a **quick** run" in page
    assert "Not measured: ladybug." in page
    assert "![Figures of W4](benchmarks/W4.svg)" in page
    assert "Rounds 3" in page


def test_a_workload_that_failed_is_reported(tmp_path: Path) -> None:
    (last,) = measure_board(
        [KNOWN["W4"]], "short", lambda *_: {"failed": "out of memory"}, tmp_path / "b.json"
    )
    assert "* W4 failed: out of memory" in report.page(last, {})
    assert not draw_board(last, tmp_path / "pictures")


def test_only_a_run_of_all_workloads_makes_the_page(board: dict[str, Any], tmp_path: Path) -> None:
    assert last_complete(tmp_path) is None
    *_, whole = measure_board(BOARD, "whole", make_record, tmp_path / "board-0.json")
    found = last_complete(tmp_path)
    assert found is not None
    assert found["date"] == whole["date"]
    assert found["size"] == "whole"
    drawable = importlib.util.find_spec("matplotlib") is not None
    assert main(["report", "--results", str(tmp_path), "--to", str(tmp_path)]) == 0
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("## W")] == [
        f"## {one.name}: {one.title}" for one in BOARD
    ]
    for one in BOARD:
        picture = f"benchmarks/{one.name}.svg"
        assert (f"]({picture})" in page) == (tmp_path / picture).exists() == drawable


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1.00"),
        (1.0001, "1.01"),
        (0.12341, "0.124"),
        (99.91, "100.0"),
        (12.34, "12.4"),
        (1234.0, "1240"),
        (1e-5, "0.0000100"),
    ],
)
def test_ratios_are_rounded_up(value: float, shown: str) -> None:
    assert report._up(value) == shown


def test_workloads_go_by_their_number_their_word_and_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        [one.name for one in find_workloads("w4")] == [one.name for one in find_workloads("writes")] == ["W4"]
    )
    assert [one.name for one in find_workloads("reads")] == ["W2", "W3", "W8"]
    with pytest.raises(SystemExit, match="2"):
        main(["nope"])
    assert "no workload called nope; there are: W1, " in capsys.readouterr().err


def test_a_workload_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    assert main(["--short", "--results", str(tmp_path), "compile"]) == 0
    (path,) = tmp_path.glob("*.json")
    one = json.loads(path.read_text(encoding="utf-8"))["workloads"]["compile"]
    assert one["times"]["compile"].keys() == {OURS, AGAIN, "python: ast.parse", "python: json.loads"}
    assert {len(seconds) for parties in one["times"].values() for seconds in parties.values()} == {3}


def test_tasks_take_turns_and_every_party_is_first_once() -> None:
    calls: list[str] = []
    found = time_in_turns(
        {("t", name): lambda name=name: calls.append(name) for name in ("a", "b")},  # type: ignore[misc]
        rounds=2,
        calls=2,
    )
    assert "".join(calls) == "ab" + "aabb" * 2
    assert len(found["t"]["a"]) == 2
    assert [rotate("abc", turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]
    assert ratio([1.0, 9.0, 2.0], [4.0]) == 0.5


def test_a_setting_lasts_as_long_as_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setenv("BENCH_ONE", "before")
    with setting("BENCH_ONE", "x"), setting("BENCH_TWO", "y"):
        assert (os.environ["BENCH_ONE"], os.environ["BENCH_TWO"]) == ("x", "y")
    assert os.environ["BENCH_ONE"] == "before"
    assert "BENCH_TWO" not in os.environ


def test_databases_that_differ_afterwards_are_refused() -> None:
    require_equal("people", {"a": (1, 2), "b": (1, 2)})
    with pytest.raises(AssertionError, match="people: all must have the same"):
        require_equal("people", {"a": (1, 2), "b": (1, 3)})


def test_answers_may_differ_in_order_and_in_the_last_digit() -> None:
    same_answers("q", {"a": [("x", 0.1 + 0.2), ("y", 1.0)], "b": [("y", 1.0), ("x", 0.3)]})


def test_answers_with_other_values_or_other_rows_are_refused() -> None:
    for other in ([("x", 2)], [("x", 1), ("x", 1)], []):
        with pytest.raises(AssertionError, match="q: a gave"):
            same_answers("q", {"a": [("x", 1)], "b": other})


def test_of_the_first_few_only_those_that_share_the_last_place_may_differ() -> None:
    first = [("x", 9), ("y", 5), ("z", 5)]
    same_answers("q", {"a": first, "b": [("x", 9), ("y", 5), ("w", 5)]}, ranked=1)
    with pytest.raises(AssertionError):
        same_answers("q", {"a": first, "b": [("v", 9), ("y", 5), ("z", 5)]}, ranked=1)
    with pytest.raises(AssertionError):
        same_answers("q", {"a": first, "b": [("x", 9), ("y", 5), ("z", 4)]}, ranked=1)
