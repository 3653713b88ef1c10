"""Benchmarks run in their short form and give numbers that can be read; how fast they are is not tested."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PEERS = ("doltlite", "ladybug")
pytestmark = pytest.mark.bench


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def test_benchmarks_time_every_task_next_to_its_yardsticks(tmp_path: Path) -> None:
    done = bench("--short", "--results", str(tmp_path), "compile")
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    assert str(path) in done.stdout
    kept = json.loads(path.read_text(encoding="utf-8"))
    names = [timing["name"] for timing in kept["timings"]]
    assert len(set(names)) == len(names)
    assert {*kept["yardsticks"], *kept["targets"], "compile", "compile, seen before"} <= set(names)
    assert kept["medians"].keys() == kept["ratios"].keys() == set(names)
    for timing in kept["timings"]:
        assert len(timing["seconds"]) == 3
        assert min(timing["seconds"]) > 0
        shown = [timing["name"], f"{kept['medians'][timing['name']] * 1000:.4f}"]
        assert any(all(part in line for part in shown) for line in done.stdout.splitlines())
    for yardstick in kept["yardsticks"]:
        assert kept["ratios"][yardstick][yardstick] == 1


def test_writes_are_measured_beside_the_peers_that_are_installed_and_the_others_are_named(
    tmp_path: Path,
) -> None:
    done = bench("--short", "--results", str(tmp_path), "writes")
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    kept = json.loads(path.read_text(encoding="utf-8"))
    names = [timing["name"] for timing in kept["timings"]]
    absent = [peer for peer in PEERS if importlib.util.find_spec(peer) is None]
    for peer in PEERS:
        assert any(name.startswith(f"{peer} ") for name in names) == (peer not in absent)
        assert (f"{peer} is not installed, and so not measured" in done.stdout) == (peer in absent)
    # The graph, a new one, the bare calls and the peers, over one and two tables, at two depths.
    assert len(names) == (3 + len(PEERS) - len(absent)) * 2 * 2
    assert "omnigraph / the same on a new graph, 2 table(s): " in done.stdout


def test_threads_all_insert_what_they_were_told(tmp_path: Path) -> None:
    done = bench("--short", "--results", str(tmp_path), "threads")
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    alone, crowd = json.loads(path.read_text(encoding="utf-8"))["timings"]
    assert len(alone["seconds"]) == len(crowd["seconds"]) == 2 * 16, "two rounds of sixteen"


def test_an_unknown_benchmark_is_refused() -> None:
    done = bench("nope")
    assert done.returncode == 2
    assert "no benchmark called nope; there are: " in done.stderr
