"""The caller of a long query may stop waiting at any moment, whatever step it is in."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.graph import Graph
from omnigraph.query import interrupt, row_growth, rows
from omnigraph.query.interrupt import WaitingQuery, make_interruptible, run_in_worker
from omnigraph.query.read_cache import shared_cache
from omnigraph.query.request import Limits, Request
from omnigraph.query.rows import Rows
from omnigraph.query.topology.linked_topology import LinkedTopology
from omnigraph.query.topology.topology import build_topology
from omnigraph.query.topology.topology_file import BytesFile, open_topology, topology_to_bytes

SCHEMA = """
node P { k: String @key  n: I64?  t: String?  v: Vector(4)? }
edge E: P -> P { w: I64? }
"""
PEOPLE = 30
VECTOR = "nearest($p.v, [1.0, 0.0, 0.0, 0.0])"
QUERIES = {
    "scan": "query q() { match { $p: P  $p.n > 3 } return { count($p) as n } }",
    "topology": "query q() { match { $p: P  $p e $q } return { count($q) as n } }",
    "walk": 'query q() { match { $p: P { k: "p1" }  $p e{1,3} $q } return { $q.k as k } }',
    "closed": "query q() { match { $p: P  $p e $q  $q e{1,3} $p } return { $p.k as k, $q.k as l } }",
    "group": "query q() { match { $p: P } return { $p.t as t, count($p) as n, max($p.k) as k } }",
    "distinct": "query q() { match { $p: P } return distinct { $p.t as t } }",
    "sort": "query q() { match { $p: P } return { $p.k as k } order { $p.t, $p.n desc } }",
    "sorted groups": "query q() { match { $p: P } return { $p.t as t, count($p) as n } order { t } }",
    "pairs": "query q() { match { $p: P  $q: P  $p.n < $q.n } return { $p.k as k, $q.k as l } }",
    "not": "query q() { match { $p: P  not { $p e $q  $q.n > 20 } } return { $p.k as k } }",
    "optional": "query q() { match { $p: P  optional { $p e $q  $q.n > 20 } } return { $p.k, $q.k } }",
    "text": 'query q() { match { $p: P } return { $p.k as k } order { bm25($p.t, "word3") } limit 3 }',
    "matching": 'query q() { match { $p: P  search($p.t, "word3") } return { $p.k as k } }',
    "vector": f"query q() {{ match {{ $p: P }} return {{ $p.k as k }} order {{ {VECTOR} }} limit 3 }}",
    "fused": f"query q() {{ match {{ $p: P }} return {{ $p.k as k }} "
    f'order {{ rrf({VECTOR}, bm25($p.t, "word3")) }} limit 3 }}',
    "fetch": "query q() { match { $p: P  $p $e:e $q } return { $p.t as t, $e.w as w, $q.n as n } }",
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    with og.init(tmp_path_factory.mktemp("interrupt") / "g", schema=SCHEMA) as made:
        with made.write() as tx:
            for number in range(PEOPLE):
                vector = [float(number), 1.0, 0.0, 0.0]
                tx.insert("P", k=f"p{number}", n=number, t=f"word{number % 5} other", v=vector)
            for number in range(3 * PEOPLE):
                tx.insert_edge("E", f"p{number % PEOPLE}", f"p{number * 7 % PEOPLE}", w=number)
        yield made


@pytest.fixture
def everything_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each table had millions of rows."""
    monkeypatch.setattr(interrupt, "LONG_WORK_ROWS", 1)


def at_work() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == interrupt.THREAD_NAME]


def wait_for_the_end() -> None:
    for thread in at_work():
        thread.join()


class Held:
    """Holds the so many-th piece of long work of a query, and has something done once it is there."""

    def __init__(self, turn: int, then: Callable[[], None]) -> None:
        self.turn, self.then = turn, then
        self.met = 0
        self.go_on = threading.Event()

    def __call__(self) -> None:
        self.met += 1
        if self.met == self.turn:
            self.then()
            self.go_on.wait()

    def release(self) -> None:
        """Let it go on, and wait for its end."""
        self.go_on.set()
        wait_for_the_end()


def pieces_of_work(graph: Graph, text: str) -> int:
    """How often a query does something apart, with nothing in memory."""
    shared_cache().forget()
    met = Held(0, lambda: None)
    with failpoints.arm(failpoints.QUERY_APART, met):
        graph.query(text)
    return met.met


@pytest.mark.parametrize("kind", QUERIES)
def test_an_answer_is_the_same_in_every_thread(
    graph: Graph, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_cache().forget()
    wanted = graph.query(QUERIES[kind]).to_arrow()
    monkeypatch.setattr(interrupt, "LONG_WORK_ROWS", 1)
    shared_cache().forget()
    assert graph.query(QUERIES[kind]).to_arrow().equals(wanted)
    assert graph.stream(QUERIES[kind], batch_rows=7).read_all().to_pylist() == wanted.to_pylist()
    assert not at_work()


@pytest.mark.parametrize("kind", QUERIES)
def test_every_piece_of_long_work_may_be_left(graph: Graph, kind: str, everything_is_long: None) -> None:
    """The work stands still, and the query is over all the same; afterwards all is as it was."""
    text = QUERIES[kind]
    wanted = graph.query(text).rows()
    for turn in range(1, pieces_of_work(graph, text) + 1):
        shared_cache().forget()
        cancel = threading.Event()
        held = Held(turn, cancel.set)
        with failpoints.arm(failpoints.QUERY_APART, held):
            with pytest.raises(errors.QueryCancelled, match="was cancelled"):
                graph.query(text, cancel=cancel)
            assert len(at_work()) == 1, "it was left while it was at work"
            held.release()
        assert held.met == turn, "nothing more was begun"
        assert not at_work()
        assert graph.query(text).rows() == wanted
    assert turn > 1


@pytest.mark.usefixtures("hears_ctrl_c")
def test_an_interrupt_ends_the_waiting(graph: Graph, everything_is_long: None) -> None:
    def press() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    held = Held(2, press)
    shared_cache().forget()
    with failpoints.arm(failpoints.QUERY_APART, held):
        with pytest.raises(KeyboardInterrupt):
            graph.query(QUERIES["sort"])
        held.release()
    assert held.met == 2


def test_the_end_of_the_time_ends_the_waiting(graph: Graph, everything_is_long: None) -> None:
    held = Held(1, lambda: None)
    shared_cache().forget()
    with failpoints.arm(failpoints.QUERY_APART, held):
        with pytest.raises(errors.QueryCancelled, match=r"longer than 0\.05 s"):
            graph.query(QUERIES["sort"], timeout=0.05)
        held.release()


def test_who_waits_for_what_another_query_makes_may_stop_waiting_too(
    graph: Graph, everything_is_long: None
) -> None:
    """The column that a query wants is being read by somebody else, who has the lock of the rows."""
    shared_cache().forget()
    graph.query("query q() { match { $p: P } return { count($p) as n } }")
    (people,) = [entry.value for entry in shared_cache()._entries.values() if isinstance(entry.value, Rows)]
    cancel = threading.Event()
    with people._lock, failpoints.arm(failpoints.QUERY_APART, cancel.set):
        with pytest.raises(errors.QueryCancelled):
            graph.query(QUERIES["scan"], cancel=cancel)
        assert len(at_work()) == 1
    wait_for_the_end()
    assert graph.query(QUERIES["scan"]).scalar() == PEOPLE - 4


def test_who_asks_again_and_again_and_never_waits_piles_up_no_work(
    graph: Graph, everything_is_long: None
) -> None:
    shared_cache().forget()
    begun, go_on = list[str](), threading.Event()

    def stands_still() -> None:
        begun.append("begun")
        go_on.wait()

    with failpoints.arm(failpoints.QUERY_APART, stands_still):
        for _ in range(2 * interrupt.MAX_ABANDONED):
            with pytest.raises(errors.QueryCancelled):
                graph.query(QUERIES["sort"], timeout=0.05)
        assert len(begun) == interrupt.MAX_ABANDONED
        go_on.set()
        wait_for_the_end()
        assert len(graph.query(QUERIES["sort"])) == PEOPLE
    assert not interrupt._abandoned


POINT = "query q($k: String) { match { $p: P { k: $k } } return { $p.n as n } }"
KEY = POINT.replace("$p.n as n", "$p.k as k")
KEYS = "query q() { match { $p: P  $p.n >= 0 } return { $p.k as k } }"


def test_who_waits_holds_nothing_that_the_work_needs(
    graph: Graph, everything_is_long: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary of all ids is to be made, and the ids themselves are not in memory."""
    monkeypatch.setattr(rows, "_PASSES", 1)
    shared_cache().forget()
    assert graph.query(POINT, {"k": "p7"}, timeout=20).scalar() == 7


def test_who_waits_holds_nothing_when_a_column_is_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So much came that the keys become one column again; they are read off the ids, which are in parts."""
    monkeypatch.setattr(row_growth, "_FEW", 1)
    monkeypatch.setattr(interrupt, "LONG_WORK_ROWS", 30)
    shared_cache().forget()
    with og.init(tmp_path / "g", schema=SCHEMA) as made:
        for turn, count in enumerate((40, 2, 2)):
            with made.write() as tx:
                for number in range(count):
                    tx.insert("P", k=f"p{turn} {number}", n=turn)
            if turn == 0:
                assert len(made.query(KEYS)) == 40
            else:
                asked = f"p{turn} 1"
                assert made.query(KEY, {"k": asked}, timeout=20).scalar() == asked
            people = [one.value for one in shared_cache()._entries.values() if isinstance(one.value, Rows)]
            people[-1].ids()  # of the newest version in one column, the keys not


def test_a_thread_that_nothing_can_stop_does_its_work_itself(graph: Graph, everything_is_long: None) -> None:
    """Ctrl-C is heard by the main thread alone."""
    counted = Held(0, lambda: None)
    with failpoints.arm(failpoints.QUERY_APART, counted):
        other = threading.Thread(target=lambda: graph.query(QUERIES["group"]))
        other.start()
        other.join()
    assert counted.met == 0


def test_short_work_makes_no_thread(graph: Graph) -> None:
    counted = Held(0, lambda: None)
    with failpoints.arm(failpoints.QUERY_APART, counted):
        for text in QUERIES.values():
            graph.query(text, cancel=threading.Event(), timeout=60)
    assert counted.met == 0


def test_a_failure_of_work_that_was_done_apart_is_reported_as_usual(
    graph: Graph, everything_is_long: None
) -> None:
    name = failpoints.QUERY_APART
    shared_cache().forget()
    with (
        failpoints.arm(name, failpoints.error(name)),
        pytest.raises(errors.InternalError, match="injected failure"),
    ):
        graph.query(QUERIES["group"])


# --- by itself -----------------------------------------------------------------------------------


def run_only(work: Callable[[], int], asking: WaitingQuery) -> int:
    """A query that does nothing but this work, on very many rows."""

    def batches() -> Iterator[int]:
        yield run_in_worker(interrupt.LONG_WORK_ROWS, work)

    try:
        return next(make_interruptible(batches(), asking))
    finally:
        asking.settle()


def test_what_is_left_settles_when_it_ends_and_not_before() -> None:
    """Until then it may still change what would be put in order."""
    cancel, go_on, settled = threading.Event(), threading.Event(), list[str]()
    asking = WaitingQuery(Request({}, 0, Limits(cancel=cancel)), lambda: settled.append("settled"))

    def work() -> int:
        cancel.set()
        go_on.wait()
        return 7

    with pytest.raises(errors.QueryCancelled):
        run_only(work, asking)
    assert settled == []
    assert asking.request.abandoned
    go_on.set()
    wait_for_the_end()
    assert settled == ["settled"]


def test_what_is_finished_settles_once() -> None:
    settled = list[str]()
    asking = WaitingQuery(Request({}, 0, Limits(cancel=threading.Event())), lambda: settled.append("settled"))
    assert run_only(lambda: 7, asking) == 7
    assert settled == ["settled"]
    assert not asking.request.abandoned


def test_work_that_was_left_ends_where_it_asks_whether_to_go_on() -> None:
    cancel, notes = threading.Event(), list[str]()
    request = Request({}, 0, Limits(cancel=cancel))
    asking = WaitingQuery(request, lambda: None)

    def work() -> int:
        cancel.set()
        while True:
            try:
                request.check()
            except errors.QueryCancelled:
                notes.append("noted")
                raise

    with pytest.raises(errors.QueryCancelled):
        run_only(work, asking)
    wait_for_the_end()
    assert notes == ["noted"]


def test_between_two_batches_a_thread_is_free(graph: Graph) -> None:
    """What a reader of a stream does with a batch is not work of the query."""
    counted = Held(0, lambda: None)
    stream = graph.stream(QUERIES["fetch"], batch_rows=5, cancel=threading.Event())
    with failpoints.arm(failpoints.QUERY_APART, counted):
        assert stream.read_next_batch().num_rows == 5
        assert run_in_worker(interrupt.LONG_WORK_ROWS, threading.current_thread) is threading.current_thread()
    assert counted.met == 0


def test_what_is_found_in_a_moment_waits_for_no_sorting() -> None:
    """Another query sorts edges, and has the locks of their topology for as long as that takes."""
    made = build_topology(pa.array(["a", "b", "c"]), pa.array(["b", "b", "a"]), True)
    made.adjacency("out")
    stored = open_topology(BytesFile(memoryview(topology_to_bytes(made, "edges"))), "edges")
    assert stored is not None
    linked = LinkedTopology(stored, np.arange(3), 3)
    held, asked, unneeded_work = threading.Event(), threading.Event(), list[str]()

    def sorts() -> None:
        with linked._lock, stored._lock:
            held.set()
            if not asked.wait(20):
                unneeded_work.append("it was waited for")

    other = threading.Thread(target=sorts)
    other.start()
    held.wait()
    assert linked.loops().tolist() == [False, True, False]
    assert stored.runs("out", distinct=False) is not None
    asked.set()
    other.join()
    assert unneeded_work == []


# --- the command ---------------------------------------------------------------------------------

INTERRUPTED = """
import faulthandler, signal, sys, threading
# A machine may be busy, so this is long; a command that hangs shows where.
faulthandler.dump_traceback_later(300, exit=True)
from omnigraph import failpoints
from omnigraph.cli.main import command
from omnigraph.query import row_growth, interrupt, rows

# A shell that started the tests in its background made them ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupt.LONG_WORK_ROWS = 1

def press_and_never_end():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    threading.Event().wait()

with failpoints.arm(failpoints.QUERY_APART, press_and_never_end):
    sys.exit(command())
"""


def test_the_command_ends_at_once_when_it_is_interrupted_in_a_long_query(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", schema=SCHEMA) as made, made.write() as tx:
        tx.insert("P", k="p", n=7)
    arguments = ["query", "--store", str(tmp_path / "g"), "-e", QUERIES["group"]]
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (130, ""), ended.stderr
    assert ended.stderr.startswith("interrupted")
