"""The tour of `make demo` does what it says, and leaves a graph to go on with."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og
from demo.sample import Sizes, tables
from omnigraph.cli.main import main

ROOT = Path(__file__).resolve().parents[2]


def tour(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "demo" / "run.py"), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_short_tour_kills_recovers_serves_and_leaves_a_graph_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    done = tour("--quick", "--out", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert "ended by signal 9" in done.stdout
    require_served(done.stdout)
    with og.open(folder / "social.omni", read_only=True) as graph:
        actors = [commit.actor for commit in graph.commits.list()]
        assert list(dict.fromkeys(actors)) == ["ann", "bo", "omnigraph:recovery", None]
        assert graph.branches.list() == ["main"]
        sizes = {key: table.rows for key, table in graph.snapshot().tables.items()}
        assert (sizes["node:Person"], sizes["edge:Follows"]) == (1001, 7001)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("OMNIGRAPH_EMBED_PROVIDER", "offline")
    further = re.findall(r"^  omnigraph (.+)$", done.stdout, re.MULTILINE)
    assert len(further) >= 3
    assert [main(shlex.split(command)) for command in further] == [0] * len(further)


def require_served(output: str) -> None:
    """The server listened where the clients went, refused bo, took ann's merge, and ended when asked."""
    (address,) = re.findall(r"^OMNIGRAPH_LISTEN_ADDR=(127\.0\.0\.1:\d+)$", output, re.MULTILINE)
    assert f"$ python share.py http://{address}/graphs/default" in output
    assert "denied: policy denied action 'change' on branch 'main' for actor 'bo'" in output
    assert re.search(r"<MergeResult 'proposal' into 'main': .+ 1 updated, 0 deleted, branch deleted>", output)
    assert "newest commit of main: by ann\n" in output
    (answer,) = re.findall(rf"--server http://{address} --graph default\n(.+?)\n\n", output, re.DOTALL)
    assert "Rome" in answer
    assert re.search(r"^process \d+ ended with status 0$", output, re.MULTILINE)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine")
    done = tour("--quick", "--out", str(tmp_path))
    assert done.returncode == 1
    assert "name another folder with --out" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_the_sample_is_the_same_every_time_and_as_large_as_asked_for() -> None:
    first, second = dict(tables(Sizes.of(2_000))), dict(tables(Sizes.of(2_000)))
    assert first == second
    assert sum(table.num_rows for table in first.values()) == 2_000
    full = Sizes.of(1_000_000)
    assert full.people + full.follows + 2 * full.documents + full.likes == 1_000_000


def test_the_tour_of_a_cluster_applies_serves_changes_and_deletes(tmp_path: Path) -> None:
    done = tour("--cluster", "--quick", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert {line[:5] for line in done.stderr.splitlines()} == {"WARN "}
    steps = [
        "cluster config valid: ",
        "cluster import: revision 1",
        "  + Create graph.knowledge",
        "  Create graph.knowledge [Applied]",
        "Grace",
        "      + Ticket.due: Date?",
        "  Update schema.tickets [Applied]",
        "ended with status 0",
        "  Delete graph.tickets [Blocked: approval_required]",
        "approved delete of graph.tickets by act-ann: ",
        "  Delete graph.tickets [Applied]",
        "  state: revision 5, converged: true, written: true",
    ]
    places = [done.stdout.find(step) for step in steps]
    assert -1 not in places, dict(zip(steps, places, strict=True))
    assert places == sorted(places)
    assert not (tmp_path / "out" / "brain" / "graphs" / "tickets.omni").exists()
