"""A reader beside others who write, compact and clean up sees one published state, and nothing between."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.query.read_cache import shared_cache
from omnigraph.query.result import Result
from tests.python_process import PIPE, Python
from tests.query.ledger import LAST, LINKS, SUMS, Ledger, look, look_again, new_ledger

PROJECT = Path(__file__).parents[2]
LONG = int(os.environ.get("OMNIGRAPH_FUZZ") or 0) > 100
ROUNDS = 200 if LONG else 6


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    shared_cache().forget()
    made = new_ledger(tmp_path)
    yield made
    made.graph.close()


class Once(threading.Event):
    """An event that is never set; the first time somebody looks at it, something happens."""

    def __init__(self, happens: Callable[[], Any]) -> None:
        super().__init__()
        self._happens: Callable[[], Any] | None = happens

    def is_set(self) -> bool:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()
        return False


# --- readers beside writers ----------------------------------------------------------------------


@pytest.mark.parametrize("handle", ["shared", "of its own"])
def test_threads_see_published_states_only(ledger: Ledger, handle: str) -> None:
    over = threading.Event()

    def read() -> list[tuple[str, dict[str, Any]]]:
        graph = ledger.graph if handle == "shared" else og.open(ledger.graph.uri, read_only=True)
        seen = [look_again(graph)]
        while not over.is_set():
            seen.append(look_again(graph))
        return [*seen, look_again(graph)]

    with ThreadPoolExecutor(2) as threads:
        readers = [threads.submit(read) for _ in range(2)]
        try:
            for number in range(ROUNDS):
                ledger.play()
                if number % 4 == 3:
                    ledger.optimize()
                if number % 2:
                    ledger.clean_up()
        finally:
            over.set()
        for reader in readers:
            seen = reader.result()
            for commit, answer in seen:
                ledger.require_published(commit, answer)
            rounds = [ledger.published[commit] for commit, _ in seen]
            assert rounds == sorted(rounds), "time went backwards"
            assert rounds[-1] == ROUNDS


def test_processes_see_published_states_only(ledger: Ledger) -> None:
    command = ["-m", "tests.query.reading_process", ledger.graph.uri, str(ROUNDS)]
    readers = [Python(*command, stdout=PIPE, cwd=PROJECT) for _ in range(1 + LONG)]
    for reader in readers:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
    for number in range(ROUNDS):
        ledger.play()
        if number % 4 == 3:
            ledger.optimize()
        if number % 2:
            ledger.clean_up()
    for reader in readers:
        output, _ = reader.communicate()
        assert reader.returncode == 0
        for line in output.splitlines():
            commit, answer = json.loads(line)
            ledger.require_published(commit, answer)


def test_many_threads_open_the_same_new_version_at_once(ledger: Ledger) -> None:
    """Each makes the rows of a version it does not know, out of whatever it finds; all must fit together."""
    commits = [ledger.play() for _ in range(6)]
    expected = [ledger.graph.query(LAST, {"n": n}, commit=c).tuples() for n, c in enumerate(commits, 1)]
    for turn in range(40 if LONG else 8):
        shared_cache().forget()
        ledger.graph.query(LINKS, commit=commits[0])
        start = threading.Barrier(6)

        def read(at: int, start: threading.Barrier = start) -> None:
            start.wait()
            commit = commits[at]
            ledger.require_published(commit, ledger.graph.query(LINKS, commit=commit).one())
            assert ledger.graph.query(LAST, {"n": at + 1}, commit=commit).tuples() == expected[at]

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(read, [(turn + at) % 6 for at in range(6)]))


# --- what was pinned -----------------------------------------------------------------------------


def test_a_snapshot_keeps_its_answer(ledger: Ledger) -> None:
    ledger.play()
    pinned = ledger.graph.snapshot()
    before = [pinned.query(text).tuples() for text in (SUMS, LINKS)]
    for _ in range(4):
        ledger.play()
        assert [pinned.query(text).tuples() for text in (SUMS, LINKS)] == before
    ledger.optimize()
    assert [pinned.query(text).tuples() for text in (SUMS, LINKS)] == before
    shared_cache().forget()
    assert [pinned.query(text).tuples() for text in (SUMS, LINKS)] == before
    ledger.require_published(*look(ledger.graph))


@pytest.mark.parametrize("known", ["nothing", "the old state", "both states"])
def test_a_past_that_was_cleaned_up_is_reported_and_the_present_goes_on(ledger: Ledger, known: str) -> None:
    first = ledger.play()
    pinned = ledger.graph.snapshot()
    if known != "nothing":
        ledger.graph.query(SUMS)
    ledger.play()
    ledger.play()
    if known == "both states":
        ledger.graph.query(SUMS)
    assert ledger.clean_up() > 0
    # The notes of that time were never read, so that no memory can have them.
    asked: list[Callable[[], Result]] = [
        lambda: ledger.graph.query(LAST, {"n": 1}, commit=first),
        lambda: pinned.query(LAST, {"n": 1}),
    ]
    for ask in asked:
        with pytest.raises(errors.HistoricalVersionReclaimed):
            ask()
    ledger.require_published(*look(ledger.graph))
    assert ledger.graph.query(LAST, {"n": 3}).tuples() == [("round 3", "round 3")]


@pytest.mark.parametrize("known", ["nothing", "the old state"])
def test_a_live_read_whose_version_is_cleaned_up_meanwhile_reads_again(ledger: Ledger, known: str) -> None:
    ledger.play()
    if known == "the old state":
        ledger.graph.query(SUMS)

    def overtaken() -> None:
        ledger.play()
        assert ledger.clean_up() > 0

    found = ledger.graph.query(LAST, {"n": 2}, cancel=Once(overtaken))
    assert found.tuples() == [("round 2", "round 2")]
    assert ledger.published[str(found.graph_commit_id)] == 2


def test_a_read_of_the_past_is_not_moved_to_the_present(ledger: Ledger) -> None:
    first = ledger.play()

    def overtaken() -> None:
        ledger.play()
        ledger.clean_up()

    with pytest.raises(errors.HistoricalVersionReclaimed):
        ledger.graph.query(LAST, {"n": 1}, commit=first, cancel=Once(overtaken))


# --- names that are used again -------------------------------------------------------------------


def test_a_branch_made_again_shows_nothing_of_its_former_life(ledger: Ledger) -> None:
    """Its tables have the same names and version numbers as before, and other rows."""
    graph = ledger.graph
    seen = set()
    for life in range(4):
        graph.branches.create("side")
        graph.mutate(
            "query q($n: I64) { insert Round { number: $n }  "
            'update Account set { balance: $n, note: "life" } where name = "a1" }',
            {"n": 1000 + life},
            branch="side",
        )
        graph.mutate(
            'query q($n: I64) { insert Owes { from: "a1", to: "a2", round: $n } }',
            {"n": 1000 + life},
            branch="side",
        )
        graph.query(SUMS, branch="main")
        text = """query q() {
          match { $a: Account { name: "a1" }  $a $e:owes $b  $r: Round  $e.round = $r.number }
          return { $a.balance, $b.name, $r.number }
        }"""
        assert graph.query(text, branch="side").tuples() == [(1000 + life, "a2", 1000 + life)]
        seen.add(tuple(sorted((key, t.version) for key, t in graph.snapshot("side").tables.items())))
        graph.branches.delete("side")
        with pytest.raises(errors.BranchNotFound):
            graph.query(text, branch="side")
    assert len(seen) == 1, "the lives had different version numbers, and nothing was proven"


def test_a_graph_made_again_in_the_same_place_shows_nothing_of_the_former(tmp_path: Path) -> None:
    for life in range(3):
        (tmp_path / "rounds.jsonl").write_text(json.dumps({"type": "Round", "data": {"number": life}}))
        with og.init(tmp_path / "g", schema="node Round { number: I64 @key }") as graph:
            graph.load(tmp_path / "rounds.jsonl", mode="append")
            found = graph.query("query q() { match { $r: Round } return { $r.number } }")
            assert found.tuples() == [(life,)]
        shutil.rmtree(tmp_path / "g")
