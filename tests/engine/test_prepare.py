from __future__ import annotations

import threading

import pytest

from omnigraph.engine.branches import create_branch
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.prepare import side_by_side
from omnigraph.engine.root import Root
from omnigraph.storage.location import Location
from tests.engine.crash.world import change
from tests.engine.graphs import new_graph
from tests.python_process import PIPE, Python


def test_tables_are_prepared_side_by_side_and_told_in_their_order() -> None:
    together = threading.Barrier(3)

    def one(key: str) -> str:
        together.wait(30)  # passed only when all are at work at once
        return key.upper()

    assert side_by_side(one, ["a", "b", "c"]) == ["A", "B", "C"]
    assert side_by_side(str.upper, []) == []


@pytest.mark.parametrize(
    ("branch", "meeting_at"),
    [
        pytest.param(MAIN, "stage_upsert", id="own-tables"),
        pytest.param("work", "find_keys", id="first-touch"),
    ],
)
def test_a_write_prepares_its_tables_side_by_side(folder: Location, branch: str, meeting_at: str) -> None:
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
        side_by_side(one, ["a", "b", "c"])
    assert sorted(done) == ["b", "c"], "nobody goes on writing for a plan that is given up"


_FORKED = """
import os, signal
from omnigraph.engine.prepare import side_by_side

assert side_by_side(str.upper, ["a", "b"]) == ["A", "B"]
child = os.fork()
signal.alarm(60)  # threads that stayed with the parent would never answer
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert side_by_side(str.upper, ["a", "b"]) == ["A", "B"]
print("done", flush=True)
"""


def test_a_forked_process_prepares_with_threads_of_its_own() -> None:
    with Python("-c", _FORKED, stdout=PIPE) as process:
        assert process.communicate()[0] == "done\ndone\n"
