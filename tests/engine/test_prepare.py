from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.load.sources import plan
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.engine.write.transaction import Author
from omnigraph.storage.concurrency import DEFAULT, SETTING, run_per_table
from omnigraph.storage.location import Location
from tests.engine.crash.world import change
from tests.engine.graphs import new_graph
from tests.python_process import PIPE, Python


def test_tables_are_prepared_side_by_side_and_reported_in_their_order() -> None:
    together = threading.Barrier(3)

    def one(key: str) -> str:
        together.wait(30)  # passed only when all are at work at once
        return key.upper()

    assert run_per_table(one, ["a", "b", "c"]) == ["A", "B", "C"]
    assert run_per_table(str.upper, []) == []


@pytest.mark.parametrize(
    ("branch", "meeting_at"),
    [
        pytest.param(MAIN, "stage_upsert", id="own-tables"),
        pytest.param("work", "find_keys", id="first-touch"),
    ],
)
def test_a_write_prepares_its_tables_run_per_table(folder: Location, branch: str, meeting_at: str) -> None:
    insert = 'insert Person {{ name: "{0}" }}  insert Team {{ name: "{0}" }}'
    change(new_graph(folder), insert.format("a"))
    create_branch(OpenGraph.open(Root.at(folder)), "work")
    together, met = threading.Barrier(2), []

    def meet(op: str, uri: str, /) -> None:
        if op == meeting_at:
            together.wait(30)  # passed only when both tables are at work at once
            met.append(uri)

    change(OpenGraph.open(Root.at(folder, meet)), insert.format("b"), branch)
    assert len(set(met)) == 2


def test_a_failure_of_the_first_table_waits_for_the_others() -> None:
    failed, done = threading.Event(), []

    def one(key: str) -> None:
        if key == "a":
            failed.set()
            raise ValueError("a")
        assert failed.wait(30)
        done.append(key)

    with pytest.raises(ValueError, match="a"):
        run_per_table(one, ["a", "b", "c"])
    assert sorted(done) == ["b", "c"], "no table is written on for a plan that is given up"


_FORKED = """
import os, signal
from omnigraph.storage.concurrency import run_per_table

assert run_per_table(str.upper, ["a", "b"]) == ["A", "B"]
child = os.fork()
signal.alarm(60)  # threads that stayed with the parent would never answer
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert run_per_table(str.upper, ["a", "b"]) == ["A", "B"]
print("done", flush=True)
"""


def test_a_forked_process_prepares_with_threads_of_its_own() -> None:
    with Python("-c", _FORKED, stdout=PIPE) as process:
        assert process.communicate()[0] == "done\ndone\n"


# --- how many at once ----------------------------------------------------------------------------


class Threads:
    """Notes which threads come to some operation; passed only when so many are there at once."""

    def __init__(self, op: str, at_once: int) -> None:
        self._op = op
        self._meeting = threading.Barrier(at_once)
        self.seen: set[int] = set()

    def __call__(self, op: str, uri: str, /) -> None:
        if op == self._op:
            self.seen.add(threading.get_ident())
            self._meeting.wait(30)


WIDE = "\n".join(f"node T{number} {{ k: String @key }}" for number in range(12))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of twelve types with a row each."""
    at = tmp_path_factory.mktemp("wide") / "g.omni"
    with og.init(at, schema=WIDE) as graph:
        graph.mutate(f"query q() {{ {rows_of_all('a')} }}")
    return at


@pytest.fixture
def wide(template: Path, tmp_path: Path) -> Location:
    return Location.parse(shutil.copytree(template, tmp_path / "g.omni"))


def rows_of_all(key: str) -> str:
    return " ".join(f'insert T{number} {{ k: "{key}" }}' for number in range(12))


@pytest.mark.parametrize("limit", [1, 2, 3, 4, None])
def test_a_write_stages_as_many_tables_at_once_as_the_setting_says(
    wide: Location, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve tables, of which eight at once leave four that meet none: so without a setting, no meeting."""
    if limit is not None:
        monkeypatch.setenv(SETTING, str(limit))
    threads = Threads("stage_upsert", limit or 1)
    change(OpenGraph.open(Root.at(wide, threads)), rows_of_all("b"))
    if limit is None:
        assert 1 <= len(threads.seen) <= DEFAULT
    else:
        assert len(threads.seen) == limit


@pytest.mark.parametrize("limit", [1, 2, 4])
def test_a_large_load_stages_as_many_files_at_once_as_the_setting_says(
    wide: Location, tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, str(limit))
    monkeypatch.setattr(plan, "_OPEN_COST", 2**40)  # a task for each file, however small
    files = [tmp_path / f"{number}.jsonl" for number in range(8)]
    for number, file in enumerate(files):
        file.write_text(f'{{"type": "T{number % 2}", "data": {{"k": "file{number}"}}}}\n')
    threads = Threads("share", limit)
    graph = OpenGraph.open(Root.at(wide, threads))
    request = LoadRequest(tuple(map(str, files)), Mode.APPEND)
    load(graph, request, Author(MAIN), engine=lambda _: Engine(LocalRunner(), "a test"))
    assert len(threads.seen) == limit


@pytest.mark.parametrize("value", ["0", "-1", "", "many", "1.5", " 2", "\u0665"])
def test_a_setting_that_is_no_number_is_refused_before_anything_is_written(
    wide: Location, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SETTING, value)
    graph = OpenGraph.open(Root.at(wide))
    before = graph.load(MAIN).state.head
    with pytest.raises(errors.BadRequest, match=SETTING):
        change(graph, 'insert T0 { k: "b" }')
    assert graph.load(MAIN).state.head == before
    assert graph.root.objects.list_dir(graph.root.layout.recovery) == []
