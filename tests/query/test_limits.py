"""What a caller does not allow is refused or stopped, typed and soon, and the graph goes on working."""

from __future__ import annotations

import json
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.graph import Graph
from omnigraph.query import counted_branches, interrupt
from omnigraph.query.search import text_index

SCHEMA = """
node Person { name: String @key  age: I64? }
edge Knows: Person -> Person { since: I64? }
edge Follows: Person -> Person
"""
PEOPLE = 15_000
RING = 120
NUMBER = 'query q() { match { $a: Person { name: "p7" }  $a knows $b } return { count($b) as n } }'
PAIRS = "query q() { match { $a: Person  $b: Person } return { $a.name, $b.name } }"
LONG = "query q() { match { $a: Person  $b: Person  $a.age + $b.age < -1 } return { $a.name, $b.name } }"
WALKS = "query q() { match { $a: Person  $a knows{1,3} $b } return { $a.name, $b.name } }"
WORDS = 'query q() { match { $a: Person  search($a.name, "p7") } return { $a.name } }'
CLOSED = "query q() { match { $a: Person  $a knows $b  $a knows{2,3} $b } return { $a.name, $b.name } }"


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Many people; all follow the first, who follows all, and some know each other in every way."""
    folder = tmp_path_factory.mktemp("crowd")
    with (folder / "in.jsonl").open("w") as file:
        for number in range(PEOPLE):
            file.write(json.dumps({"type": "Person", "data": {"name": f"p{number}", "age": number}}) + "\n")
        for number in range(1, PEOPLE):
            for ends in ((f"p{number}", "p0"), ("p0", f"p{number}")):
                file.write(json.dumps({"edge": "Follows", "from": ends[0], "to": ends[1], "data": {}}) + "\n")
        for source in range(RING):
            for target in range(RING):
                edge = {"edge": "Knows", "from": f"p{source}", "to": f"p{target}", "data": {"since": target}}
                file.write(json.dumps(edge) + "\n")
    with og.init(folder / "g", schema=SCHEMA) as graph:
        graph.load(folder / "in.jsonl", mode="append")
        yield graph


@pytest.fixture(autouse=True)
def nothing_is_left_behind(crowd: Graph) -> Iterator[None]:
    """After every refusal the same handle answers; what goes on of a query ends, and no file stays."""
    assert crowd.query(NUMBER).scalar() == RING
    threads, files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert crowd.query(NUMBER).scalar() == RING
    left_to_end()
    assert threading.active_count() == threads
    assert len(list(Path("/proc/self/fd").iterdir())) <= files


def left_to_end() -> None:
    """Wait until what was left of queries has noticed; a test that hangs here is one that never would."""
    for thread in threading.enumerate():
        if thread.name == interrupt.THREAD_NAME:
            thread.join()


class SetLater(threading.Event):
    """An event that another thread sets when it was looked at so many times."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks
        self.seen = 0

    def is_set(self) -> bool:
        self.seen += 1
        if self.seen == self._looks:
            other = threading.Thread(target=self.set)
            other.start()
            other.join()
        return super().is_set()


# --- rows ----------------------------------------------------------------------------------------


def test_more_rows_than_allowed_are_refused_and_not_cut(crowd: Graph) -> None:
    text = "query some() { match { $a: Person  $a.age < 10 } return { $a.name } }"
    assert len(crowd.query(text, max_rows=10)) == 10
    with pytest.raises(errors.ResourceLimitExceeded, match="rows of query 'some'") as caught:
        crowd.query(text, max_rows=9)
    assert (caught.value.limit, caught.value.actual) == (9, 10)
    with pytest.raises(errors.ResourceLimitExceeded):
        crowd.query(text, max_rows=0)
    assert len(crowd.query(text.replace("< 10", "< 0"), max_rows=0)) == 0


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("max_rows", -1),
        ("max_rows", 2.5),
        ("max_rows", "5"),
        ("max_rows", True),
        ("timeout", -0.5),
        ("timeout", float("nan")),
        ("timeout", "soon"),
        ("cancel", True),
    ],
)
def test_a_limit_that_means_nothing_is_refused(crowd: Graph, limit: str, value: Any) -> None:
    with pytest.raises(errors.InvalidValue, match=limit):
        crowd.query(NUMBER, **{limit: value})


@pytest.mark.parametrize("value", ["3", 1.5, True, None, float("nan"), 0, -1])
def test_a_size_of_batches_that_means_nothing_is_refused(crowd: Graph, value: Any) -> None:
    with pytest.raises(errors.InvalidValue, match=r"batch_rows`? must be"):
        crowd.stream(NUMBER, batch_rows=value)


@pytest.mark.parametrize("value", ["3", 1.5, True, float("inf"), -1])
def test_a_version_that_is_none_is_refused(crowd: Graph, value: Any) -> None:
    with pytest.raises(errors.InvalidValue, match=r"version`? must be"):
        crowd.query(NUMBER, version=value)


def test_batches_may_be_larger_than_any_result(crowd: Graph) -> None:
    assert crowd.stream(NUMBER, batch_rows=2**70).read_all().num_rows == 1


TWO_HOPS = "$a: Person  $a follows $hub  $hub follows $b"


@pytest.mark.parametrize(
    "text",
    [
        PAIRS,
        f"query q() {{ match {{ {TWO_HOPS} }} return {{ $a.name, $b.name }} }}",
        "query q() { match { $a: Person  $a follows $hub  $hub $e:follows $b } return { $a.name, $b.name } }",
        f"query q() {{ match {{ {TWO_HOPS} $b.age >= 0 }} return {{ $a.name, $b.age }} order {{ $b.age }} }}",
        "query q() { match { $a: Person  optional { $a follows $c  $c follows $b } } return { $b.name } }",
        "query q() { match { $a: Person  $b: Person  $c: Person } return { $a.name, count($b.age) as n } }",
    ],
)
def test_more_rows_in_flight_than_memory_holds_are_refused_before_they_are_made(
    crowd: Graph, text: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(errors.ResourceLimitExceeded, match="rows in flight") as caught:
        crowd.query(text)
    assert caught.value.actual > caught.value.limit
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken < 400_000, f"{taken} kB were taken to find out"


def test_rows_are_counted_by_what_they_take(crowd: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are few enough by number are refused where the machine has no memory for them."""
    wide = "$a: Person  $a knows $b  $b knows $c  $c knows $d"
    query = f"query q() {{ match {{ {wide} }} return {{ $a.name, $b.name, $c.name, $d.name }} }}"
    text = query.replace("return", "return distinct")
    monkeypatch.setattr("omnigraph.query.request.machine_memory", lambda: 256_000_000)
    with pytest.raises(errors.ResourceLimitExceeded, match="bytes of rows in flight") as caught:
        crowd.query(text)
    assert caught.value.limit == 32_000_000
    assert caught.value.actual == RING**3 * 3 * 8, "refused before the last walk was begun"


def test_what_a_filter_leaves_of_very_many_is_not_refused(crowd: Graph) -> None:
    """Half of a hop's rows would be too many; the few that pass are not."""
    text = f"query q() {{ match {{ {TWO_HOPS}  $b.age < 3  $a.age >= 0 }} return {{ $a.name, $b.name }} }}"
    assert len(crowd.query(text)) == 3 * (PEOPLE - 1)


def test_counting_writes_no_rows_out(crowd: Graph) -> None:
    text = f"query q() {{ match {{ {TWO_HOPS} }} return {{ count($b) as n }} }}"
    assert crowd.query(text).scalar() == (PEOPLE - 1) ** 2 + (PEOPLE - 1)


def test_a_count_beyond_64_bits_is_refused(crowd: Graph) -> None:
    bound = "  ".join(f"$v{number}: Person" for number in range(5))
    with pytest.raises(errors.QueryError, match="does not fit 64 bits"):
        crowd.query(f"query q() {{ match {{ {bound} }} return {{ count($v0) as n }} }}")


# --- time and cancelling -------------------------------------------------------------------------


@pytest.mark.parametrize("text", [NUMBER, PAIRS, LONG, WALKS])
def test_no_time_at_all_stops_every_query(crowd: Graph, text: str) -> None:
    with pytest.raises(errors.QueryCancelled, match="longer than 0 s"):
        crowd.query(text, timeout=0)


@pytest.mark.parametrize("text", [NUMBER, PAIRS, LONG, WALKS])
def test_an_event_that_is_set_already_stops_every_query(crowd: Graph, text: str) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(errors.QueryCancelled, match="was cancelled"):
        crowd.query(text, cancel=cancel)
    assert crowd.query(NUMBER, cancel=threading.Event()).scalar() == RING


def test_a_short_time_stops_a_long_query(crowd: Graph) -> None:
    with pytest.raises(errors.QueryCancelled, match=r"longer than 0\.01 s"):
        crowd.query(LONG, timeout=0.01)


@pytest.mark.parametrize("text", [LONG, WALKS, CLOSED, WORDS])
def test_another_thread_stops_a_query_in_the_middle(
    crowd: Graph, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_branches, "STEPS_AT_ONCE", 10_000)
    monkeypatch.setattr(text_index, "_PIECE", 500)
    steps = len(crowd.explain(NUMBER).steps)
    looks = 3 * steps + 5  # more than there are steps: inside of one of them
    cancel = SetLater(looks)
    with pytest.raises(errors.QueryCancelled, match="was cancelled"):
        crowd.query(text, cancel=cancel)
    assert cancel.seen == looks, "it went on after it was cancelled"


class Interrupting(SetLater):
    """Presses Ctrl-C when it was looked at so many times."""

    def set(self) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.usefixtures("hears_ctrl_c")
@pytest.mark.parametrize("text", [LONG, WALKS, CLOSED])
def test_an_interrupt_ends_a_query_in_the_middle(
    crowd: Graph, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_branches, "STEPS_AT_ONCE", 10_000)
    with pytest.raises(KeyboardInterrupt):
        crowd.query(text, cancel=Interrupting(12))


def test_a_stream_is_stopped_between_batches(crowd: Graph) -> None:
    cancel = threading.Event()
    text = "query q() { match { $a: Person } return { $a.name } order { $a.age } }"
    reader = crowd.stream(text, batch_rows=100, cancel=cancel)
    assert reader.read_next_batch().to_pylist()[0] == {"a.name": "p0"}
    cancel.set()
    with pytest.raises(errors.QueryCancelled):
        reader.read_all()


# --- wrong questions -----------------------------------------------------------------------------

NAMED = "query q($name: String, $n: I64?) { match { $a: Person { name: $name } } return { $a.age } }"


@pytest.mark.parametrize(
    ("text", "params", "kind"),
    [
        (NAMED, None, errors.ParameterError),
        (NAMED, {}, errors.ParameterError),
        (NAMED, {"name": None}, errors.ParameterError),
        (NAMED, {"name": 7}, errors.ParameterError),
        (NAMED, {"name": "p1", "n": "seven"}, errors.ParameterError),
        ("query q() { match { $a: Missing } return { $a.name } }", None, errors.CompileError),
        ("query q() { match { $a: Person } return { $a.shoe } }", None, errors.CompileError),
        ("query q() { match { $a: Person  $a hates $b } return { $a.name } }", None, errors.CompileError),
        ("query q() { match { $a: Person } return { $a.name }", None, errors.ParseError),
        ('query q() { delete Person where name = "p1" }', None, errors.WrongQueryKind),
        ('query q() { insert Person { name: "new" } }', None, errors.WrongQueryKind),
    ],
)
def test_a_wrong_question_is_reported_and_changes_nothing(
    crowd: Graph, text: str, params: Any, kind: type[errors.OmnigraphError]
) -> None:
    head = crowd.snapshot().id
    with pytest.raises(kind):
        crowd.query(text, params)
    with pytest.raises(kind):
        crowd.explain(text, params)
    assert crowd.snapshot().id == head
