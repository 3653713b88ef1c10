"""The doctor runs while others write: a write in progress is not reported as a problem."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import lance
import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.engine.maintenance.health import Health
from omnigraph.errors import RecoveryRequired
from omnigraph.storage.indexes import IndexSpec, stage_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.staging import commit_staged
from tests.engine.crash.world import change
from tests.engine.graphs import new_graph

STRIDE = 1 if os.environ.get("OMNIGRAPH_TORTURE") else 5
"""Of every so many storage calls of the doctor one is tried here, and all by `make torture`."""
SCHEMA = "node Person { name: String @key  age: I32? }\nnode Team { name: String @key }\n"
PERSON, TEAM = "node:Person", "node:Team"
WRITTEN = failpoints.MUTATION_POST_TABLE_COMMIT
BOTH = 'insert Person {{ name: "{0}" }}  insert Team {{ name: "{0}" }}'


class Meanwhile:
    """Hears of the storage calls of the doctor, and does something at some of them."""

    def __init__(self) -> None:
        self._calls = 0
        self._acts: dict[int, Callable[[], object]] = {}

    def at(self, acts: dict[int, Callable[[], object]]) -> None:
        """Count the calls from here on, and act at those with these numbers."""
        self._calls, self._acts = 0, dict(acts)

    @property
    def is_over(self) -> bool:
        """Whether there was nothing to be done any more when the doctor was done."""
        return not self._acts

    def __call__(self, op: str, uri: str, /) -> None:
        self._calls += 1
        act = self._acts.pop(self._calls, None)
        if act is not None:
            act()


class Slow:
    """A write of another thread, which stands still once its first table has its new version."""

    def __init__(self, graph: OpenGraph, text: str, branch: str = MAIN) -> None:
        self._pause = failpoints.Pause()
        self._thread = threading.Thread(target=change, args=(graph, text, branch))

    def begin(self) -> None:
        with failpoints.arm(WRITTEN, failpoints.once(self._pause)):
            self._thread.start()
            self._pause.wait_until_reached()

    def end(self) -> None:
        """Let it end, if it began."""
        self._pause.resume()
        if self._thread.ident is not None:
            self._thread.join()


@pytest.fixture
def graph(folder: Location) -> OpenGraph:
    return new_graph(folder, SCHEMA)


@pytest.fixture
def meanwhile() -> Meanwhile:
    return Meanwhile()


@pytest.fixture
def doctor(graph: OpenGraph, meanwhile: Meanwhile) -> Callable[[], Health]:
    """Looks at the graph as one that just arrived."""

    def look() -> Health:
        return examine(OpenGraph.open(Root.at(graph.root.layout.root, meanwhile), read_only=True))

    return look


Doctor = Callable[[], Health]


def past_the_door(graph: OpenGraph) -> None:
    """Something else than omnigraph writes to a table."""
    entry = graph.load(MAIN).state.entries()[PERSON]
    table = lance.dataset(graph.root.layout.table(entry.path).uri)
    table.insert(pa.table({"id": ["x"], "name": ["x"], "age": [1]}, schema=table.schema))


@contextmanager
def under_way(slow: Slow) -> Iterator[None]:
    slow.begin()
    try:
        yield
    finally:
        slow.end()


def test_a_write_that_begins_and_ends_while_the_doctor_looks_is_no_drift(
    graph: OpenGraph, doctor: Doctor, meanwhile: Meanwhile
) -> None:
    for number in count(1, STRIDE):
        meanwhile.at({number: lambda n=number: change(graph, BOTH.format(f"n{n}"))})  # type: ignore[misc]
        found = doctor()
        assert (found.drift, found.records, found.ok) == ((), (), True), number
        if not meanwhile.is_over:
            assert number > 20, "the doctor asks that much"
            return


def test_a_write_that_begins_while_the_doctor_looks_is_no_drift(
    graph: OpenGraph, doctor: Doctor, meanwhile: Meanwhile
) -> None:
    for number in count(1, STRIDE):
        slow = Slow(graph, BOTH.format(f"n{number}"))
        meanwhile.at({number: slow.begin})
        found = doctor()
        slow.end()
        assert (found.drift, found.ok) == ((), True), number
        assert all(record.busy for record in found.records)
        if not meanwhile.is_over:
            assert number > 20, "the doctor asks that much"
            return


def test_a_write_that_ends_while_the_doctor_looks_is_no_drift(
    graph: OpenGraph, doctor: Doctor, meanwhile: Meanwhile
) -> None:
    for number in count(1, STRIDE):
        slow = Slow(graph, BOTH.format(f"n{number}"))
        slow.begin()
        meanwhile.at({number: slow.end})
        found = doctor()
        over = meanwhile.is_over
        slow.end()
        assert (found.drift, found.ok) == ((), True), number
        assert all(record.busy for record in found.records)
        if not over:
            assert number > 20, "the doctor asks that much"
            return


def test_a_write_that_begins_at_one_call_and_ends_at_another_is_no_drift(
    graph: OpenGraph, doctor: Doctor, meanwhile: Meanwhile
) -> None:
    for number in count(1, STRIDE):
        slow = Slow(graph, BOTH.format(f"n{number}"))
        meanwhile.at({number: slow.begin, number + 2: slow.end})
        found = doctor()
        over = meanwhile.is_over
        slow.end()
        assert (found.drift, found.ok) == ((), True), number
        if not over:
            assert number > 20, "the doctor asks that much"
            return


def test_a_table_that_moves_whenever_it_is_looked_at_is_alive(
    graph: OpenGraph, doctor: Doctor, meanwhile: Meanwhile
) -> None:
    names = count(1)
    meanwhile.at(dict.fromkeys(range(1, 1000, 3), lambda: change(graph, BOTH.format(f"n{next(names)}"))))
    found = doctor()
    assert (found.drift, found.unread, found.ok) == ((), (), True)


def test_a_write_that_stands_still_is_reported_as_under_way_and_not_as_drift(
    graph: OpenGraph, doctor: Doctor
) -> None:
    with under_way(Slow(graph, BOTH.format("eve"))):
        found = doctor()
    (record,) = found.records
    assert (record.busy, record.stuck, record.decision) == (True, False, None)
    assert record.tables.keys() == {PERSON, TEAM}
    assert (found.drift, found.ok) == ((), True)
    assert doctor().records == ()


def test_what_another_process_wrote_is_drift_also_while_somebody_writes_elsewhere(
    graph: OpenGraph, doctor: Doctor
) -> None:
    past_the_door(graph)
    with under_way(Slow(graph, 'insert Team { name: "ops" }')):
        found = doctor()
    assert [(one.key, one.cause) for one in found.drift] == [(PERSON, "a change outside of a commit")]
    assert not found.ok


def test_upkeep_is_drift_only_when_no_upkeep_runs(graph: OpenGraph, doctor: Doctor) -> None:
    entry = graph.load(MAIN).state.entries()[PERSON]
    table = graph.root.tables.tip(graph.root.layout.table(entry.path))
    commit_staged(stage_indexes(table, [IndexSpec("age", "BTREE", "by_age")]))
    with graph.root.locks.hold([MAIN]):
        assert doctor().drift == ()
    assert [one.cause for one in doctor().drift] == ["maintenance"]


def test_an_interrupted_write_is_reported_with_its_drift(graph: OpenGraph, doctor: Doctor) -> None:
    with failpoints.arm(WRITTEN, failpoints.error(WRITTEN)), pytest.raises(RecoveryRequired):
        change(graph, 'insert Person { name: "eve" }')
    found = doctor()
    assert [record.busy for record in found.records] == [False]
    assert [(one.key, one.cause) for one in found.drift] == [(PERSON, "a write on record")]
    assert not found.ok


def test_the_first_write_of_a_branch_is_reported_as_under_way_and_not_as_a_stray_fork(
    graph: OpenGraph, doctor: Doctor
) -> None:
    create_branch(graph, "work")
    with under_way(Slow(graph, BOTH.format("eve"), "work")):
        found = doctor()
    assert (found.forks, found.ok) == ((), True)
    assert [record.branch for record in found.records] == ["work"]


def test_looking_writes_nothing_and_keeps_the_writer_in_its_place(graph: OpenGraph) -> None:
    heard = Recorder()
    slow = Slow(graph, BOTH.format("eve"))
    with under_way(slow):
        examine(OpenGraph.open(Root.at(graph.root.layout.root, heard), read_only=True))
        assert graph.root.locks.try_acquire([MAIN]) is None
    assert not [call for call in heard.calls if call.op.startswith(("write", "create", "delete", "commit"))]
