"""A write conflicts only with commits that moved a table it writes or read, and the result is always serial.

Each test prepares a write, lets other writers commit before it takes its lock, and then lets it go on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.engine.load import loader
from tests.examples import EXAMPLES

SCHEMA = """
node Person { name: String @key  age: I32?  mail: String? @unique }
node Team { name: String @key  size: I32? }
node Note { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge Leads: Person -> Team @card(0..1)
"""
START = """query q() {
  insert Person { name: "ada", age: 1, mail: "a" }
  insert Person { name: "bo", age: 2, mail: "b" }
  insert Person { name: "cy", age: 3 }
  insert Team { name: "core", size: 1 }
  insert Team { name: "web", size: 1 }
  insert Note { name: "n" }
  insert Knows { from: "ada", to: "bo", since: 1 }
  insert Leads { from: "ada", to: "core" }
}"""

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Write:
    """A write and the tables it depends on."""

    do: Callable[[og.Graph, int], object]
    writes: frozenset[str]
    reads: frozenset[str]
    strict: bool = False
    retries: bool = True

    @property
    def depends_on(self) -> frozenset[str]:
        return self.writes | self.reads


def mutation(text: str, writes: str, reads: str = "", *, strict: bool = False) -> Write:
    def do(graph: og.Graph, retry: int) -> object:
        return graph.mutate(f"query q() {{ {text} }}", retry=retry)

    return Write(do, frozenset(writes.split()), frozenset(reads.split()), strict)


def overwrite(writes: str, reads: str, *records: Mapping[str, Any]) -> Write:
    def do(graph: og.Graph, retry: int) -> object:
        path = Path(graph.uri).parent / "input.jsonl"
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        return graph.load(path, mode="overwrite")

    return Write(do, frozenset(writes.split()), frozenset(reads.split()), strict=True, retries=False)


def node(type_name: str, **data: object) -> dict[str, object]:
    return {"type": type_name, "data": data}


WRITES = {
    "update person": mutation('update Person set { age: 9 } where name = "bo"', "Person", strict=True),
    "update unique": mutation('update Person set { mail: "z" } where name = "bo"', "Person", strict=True),
    "update team": mutation("update Team set { size: 9 } where size = 1", "Team", strict=True),
    "update both": mutation(
        'update Person set { age: 8 } where name = "cy" update Team set { size: 8 } where name = "web"',
        "Person Team",
        strict=True,
    ),
    "update knows": mutation("update Knows set { since: 5 } where since = 1", "Knows", "Person", strict=True),
    "delete person": mutation('delete Person where name = "bo"', "Person Knows", "Leads", strict=True),
    "delete leader": mutation('delete Person where name = "ada"', "Person Knows Leads", strict=True),
    "delete loner": mutation('delete Person where name = "cy"', "Person", "Knows Leads", strict=True),
    "delete team": mutation('delete Team where name = "core"', "Team Leads", strict=True),
    "delete knows": mutation("delete Knows where since = 1", "Knows", strict=True),
    "delete leads": mutation('delete Leads where from = "ada"', "Leads", strict=True),
    "insert person": mutation('insert Person { name: "di", mail: "d" }', "Person"),
    "upsert person": mutation('insert Person { name: "cy", age: 7 }', "Person"),
    "create person": mutation('create Person { name: "di", age: 6 }', "Person"),
    "insert team": mutation('insert Team { name: "ops" }', "Team"),
    "insert note": mutation('insert Note { name: "m" }', "Note"),
    "insert knows": mutation('insert Knows { from: "cy", to: "bo" }', "Knows", "Person"),
    "insert leads": mutation('insert Leads { from: "bo", to: "web" }', "Leads", "Person Team"),
    "insert with ends": mutation(
        'insert Person { name: "ed" } insert Knows { from: "ed", to: "ed" }', "Person Knows"
    ),
    "overwrite person": overwrite(
        "Person",
        "Knows Leads",
        node("Person", name="ada", age=5),
        node("Person", name="bo", age=5),
    ),
    "overwrite team": overwrite("Team", "Leads", node("Team", name="core", size=5)),
    "overwrite note": overwrite("Note", "", node("Note", name="o")),
    "overwrite knows": overwrite("Knows", "Person", {"edge": "Knows", "from": "bo", "to": "bo", "data": {}}),
}
STRICT = [name for name, write in WRITES.items() if write.strict]
MOVERS = ["upsert person", "insert team", "insert note", "insert knows", "insert leads", "delete team"]
"""Rivals that move each table, and some of them together."""
CONFLICTS = ("manifest_conflict", "read_set_conflict")
"""A table that is written has moved, or one that was only read."""


def rows_of(graph: og.Graph) -> Rows:
    """Every row of the graph; the ids of edges are generated, so they are left out."""
    found: Rows = {}
    snapshot = graph.snapshot()
    for name in ("Person", "Team", "Note", "Knows", "Leads"):
        rows = snapshot.rows(name).to_pylist()
        plain = [{key: row[key] for key in row if key != "id"} for row in rows]
        found[name] = sorted(plain, key=lambda row: json.dumps(row, sort_keys=True))
    return found


def outcome_of(act: Callable[[], object]) -> str | None:
    """The code of the error that an action ends in; None when it takes effect."""
    try:
        act()
    except errors.OmnigraphError as error:
        return error.code
    return None


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph in which no table is empty; tests work on copies."""
    at = tmp_path_factory.mktemp("start") / "g.omni"
    with og.init(at, schema=SCHEMA) as graph:
        graph.mutate(START)
    return at


class Copies:
    """Fresh copies of one graph, each in a folder of its own."""

    def __init__(self, start: Path, folder: Path) -> None:
        self._start = start
        self._folder = folder
        self._made = 0

    def new(self) -> Path:
        self._made += 1
        return Path(shutil.copytree(self._start, self._folder / str(self._made) / "g.omni"))


@pytest.fixture
def copies(start: Path, tmp_path: Path) -> Copies:
    return Copies(start, tmp_path)


def race(at: Path, late: Write, rivals: Iterable[Write], retry: int = 0) -> tuple[str | None, Rows]:
    """How a write ends when rivals commit after it was prepared, and the rows afterwards."""
    with og.open(at) as graph, og.open(at) as rival:
        return overtaken(graph, rival, late, rivals, retry), rows_of(rival)


def overtaken(
    graph: og.Graph, rival: og.Graph, late: Write, rivals: Iterable[Write], retry: int = 0
) -> str | None:
    """How a write ends when rivals commit after it was prepared."""
    rounds = [list(rivals)]

    def overtake() -> None:
        for one in rounds.pop() if rounds else ():  # the rivals come here, too
            outcome_of(partial(one.do, rival, 0))

    with failpoints.arm(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE, overtake):
        return outcome_of(lambda: late.do(graph, retry))


def serial(at: Path, writes: Iterable[Write]) -> tuple[str | None, Rows]:
    """How the last of some writes ends when they follow one another, and the rows afterwards."""
    ended = None
    with og.open(at) as graph:
        for one in writes:
            ended = outcome_of(partial(one.do, graph, 0))
        return ended, rows_of(graph)


def expected_of(one: Write, other: Write) -> str | None:
    """How a strict write ends that another one overtook."""
    moved = other.writes & one.depends_on
    if not moved:
        return None
    return CONFLICTS[0] if moved & one.writes else CONFLICTS[1]


@pytest.mark.parametrize("late", STRICT)
def test_a_strict_write_fails_exactly_when_a_table_it_depends_on_moved(copies: Copies, late: str) -> None:
    one = WRITES[late]
    found = {}
    for rival in MOVERS:
        at = copies.new()
        with og.open(at) as graph, og.open(at) as other:
            found[rival] = overtaken(graph, other, one, [WRITES[rival]])
    assert found == {rival: expected_of(one, WRITES[rival]) for rival in MOVERS}


@pytest.mark.parametrize("late", [name for name in STRICT if WRITES[name].retries])
def test_a_retry_prepares_an_update_or_delete_again(copies: Copies, late: str) -> None:
    one = WRITES[late]
    for rival in ("upsert person", "delete leads"):
        if WRITES[rival].writes & one.depends_on:
            found = race(copies.new(), one, [WRITES[rival]], retry=1)
            assert found == serial(copies.new(), [WRITES[rival], one]), rival


@given(
    late=st.sampled_from(sorted(WRITES)),
    rivals=st.lists(st.sampled_from(sorted(WRITES)), min_size=1, max_size=4),
    retry=st.integers(0, 2),
)
@settings(max_examples=max(1, EXAMPLES // 10), suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.fuzz
def test_a_write_that_was_overtaken_leaves_what_some_serial_order_leaves(
    copies: Copies, late: str, rivals: list[str], retry: int
) -> None:
    """The overtaken write comes last in that order, or failed with a conflict and is not part of it."""
    one, others = WRITES[late], [WRITES[name] for name in rivals]
    ended, rows = race(copies.new(), one, others, retry)
    if ended in CONFLICTS:
        assert one.strict
        assert not (retry and one.retries)
        assert rows == serial(copies.new(), others)[1]
    else:
        assert (ended, rows) == serial(copies.new(), [*others, one])


@pytest.mark.parametrize("late", [name for name in STRICT if not WRITES[name].retries])
def test_a_large_overwrite_depends_on_the_same_tables(
    copies: Copies, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load that is checked by tasks reads tables by other means than one in memory."""
    monkeypatch.setattr(loader, "IN_MEMORY", 0)
    one = WRITES[late]
    for rival in ("insert note", "insert team", "insert person", "insert knows", "delete leads"):
        other = WRITES[rival]
        ended, rows = race(copies.new(), one, [other])
        if other.writes & one.depends_on:
            assert ended in CONFLICTS, rival
            assert rows == serial(copies.new(), [other])[1], rival
        else:
            assert (ended, rows) == serial(copies.new(), [other, one]), rival


def race_update(at: Path, text: str, rival: str, **how: Any) -> object:
    """A mutation that another one overtakes."""
    todo = [rival]
    with og.open(at) as graph, og.open(at) as other:

        def overtake() -> None:
            while todo:
                other.mutate(f"query q() {{ {todo.pop()} }}")

        with failpoints.arm(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE, overtake):
            return graph.mutate(f"query q() {{ {text} }}", **how)


def test_a_conflict_names_the_table_that_moved(copies: Copies) -> None:
    delete = 'delete Person where name = "cy"'
    with pytest.raises(errors.ReadSetChanged) as caught:
        race_update(copies.new(), delete, 'insert Leads { from: "bo", to: "web" }')
    assert caught.value.member == "edge:Leads"
    with pytest.raises(errors.TableVersionConflict) as moved:
        race_update(copies.new(), delete, 'insert Person { name: "di" }')
    assert moved.value.table_key == "node:Person"


def test_a_create_that_another_one_overtook_is_a_conflict(copies: Copies) -> None:
    create, at = 'create Person { name: "di" }', copies.new()
    with pytest.raises(errors.KeyConflict):
        race_update(at, create, 'create Person { name: "di", age: 4 }')
    race_update(at, 'create Person { name: "ed" }', 'create Person { name: "fay" }')
    with og.open(at) as graph:
        rows = graph.snapshot().rows("Person").to_pylist()
    assert {row["name"]: row["age"] for row in rows if row["name"] > "d"} == {
        "di": 4,
        "ed": None,
        "fay": None,
    }


def test_a_condition_on_the_head_fails_on_any_commit_and_is_never_retried(copies: Copies) -> None:
    at = copies.new()
    with og.open(at) as graph:
        head = graph.commits.list()[0].id
    with pytest.raises(errors.PreconditionFailed):
        race_update(
            at,
            'update Person set { age: 9 } where name = "bo"',
            'insert Note { name: "m" }',
            if_commit=head,
            retry=5,
        )


@pytest.mark.parametrize("retry", [-1, True, 1.5, "3", None])
def test_a_number_of_retries_is_checked(copies: Copies, retry: Any) -> None:
    with og.open(copies.new()) as graph:
        with pytest.raises(errors.BadRequest, match="retry"):
            graph.mutate('query q() { insert Note { name: "m" } }', retry=retry)
        with pytest.raises(errors.BadRequest, match="retry"):
            graph.write(retry=retry)


def test_a_write_block_retries_as_often_as_asked(copies: Copies) -> None:
    at = copies.new()
    ages = iter(range(100, 200))

    def overtake() -> None:
        if next(ages) == 100:
            other.mutate('query q() { update Person set { age: 50 } where name = "bo" }')

    for retry, expected in ((0, 50), (1, 9)):
        ages = iter(range(100, 200))
        with og.open(at) as graph, og.open(at) as other:
            with failpoints.arm(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE, overtake):
                block = graph.write(retry=retry)
                try:
                    with block as tx:
                        tx.update("Person", ("name", "=", "bo"), age=9)
                except errors.TableVersionConflict:
                    assert retry == 0
            rows = graph.snapshot().rows("Person").to_pylist()
        assert {row["name"]: row["age"] for row in rows}["bo"] == expected
