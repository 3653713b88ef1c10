"""A graph against plain dictionaries: random writes, branches, looks at the past, and crashes."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.sweep import sweep
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, OpenGraph, ReadTarget
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import ConstraintViolation, KeyConflict, LoadRejected, OmnigraphError
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.lang.query.parameters import decode_parameters
from omnigraph.storage.location import Location
from tests.engine.graphs import require_linear, require_owners
from tests.examples import EXAMPLES

SCHEMA = """
node Person { name: String @key  age: I32? }
node Team { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""

BEGINNING = """
insert Person { name: "a", age: 1 } insert Person { name: "b", age: 3 }
insert Team { name: "a" } insert Knows { from: "a", to: "b", since: 2 }
"""

NAMES = st.sampled_from("abcde")
AGES = st.integers(0, 4)
BRANCHES = ("left", "right")

# The points that a write comes to, in its order.
UNRECORDED = (
    failpoints.MUTATION_POST_NO_EFFECT_PRE_GATE,
    failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE,
    failpoints.RECOVERY_SIDECAR_WRITE,
)
"""A write that dies here was never begun: no other writer knows of it."""
FIRST_TOUCH = (
    failpoints.MUTATION_POST_SIDECAR_PRE_FORK,
    failpoints.FORK_POST_CREATE_PRE_OPEN,
    failpoints.MUTATION_POST_FORK_PRE_COMMIT,
)
"""One that dies here is undone: it was about to make a table its branch's own."""
UNCONFIRMED = (failpoints.MUTATION_POST_TABLE_COMMIT, failpoints.RECOVERY_SIDECAR_CONFIRM)
"""One that dies here is undone: its record does not say that all tables have moved."""
CONFIRMED = (
    failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER,
    failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND,
    failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
    failpoints.RECOVERY_SIDECAR_DELETE,
)
"""One that dies here is finished, or is visible already."""
RECOVERING = (
    failpoints.RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH,
    failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND,
    failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
    failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH,
    failpoints.RECOVERY_RECORD_AUDIT,
)
"""Where a recovery may die: every one comes to the last of these, whatever it does."""

PHASES = {
    "before the record": UNRECORDED,
    "first touch": FIRST_TOUCH,
    "undone": UNCONFIRMED,
    "finished": CONFIRMED,
}
IN_A_RECOVERY = "in a recovery"

Edge = tuple[str, str, int]


@dataclass(frozen=True)
class World:
    """All there is on a branch."""

    people: dict[str, int | None] = field(default_factory=dict)
    teams: frozenset[str] = frozenset()
    edges: tuple[Edge, ...] = ()

    def with_edge(self, edge: Edge) -> World:
        return replace(self, edges=tuple(sorted([*self.edges, edge])))

    def without(self, doomed: set[str]) -> World:
        """Without these people and every edge at one of them."""
        people = {name: age for name, age in self.people.items() if name not in doomed}
        return replace(self, people=people, edges=tuple(e for e in self.edges if not doomed & {e[0], e[1]}))


class Crash(BaseException):
    """The process ended here: no handler of errors may take part."""


class Moment(NamedTuple):
    """A phase of a write, a point of it, and which time that it is come to."""

    phase: str
    point: str
    nth: int = 1


MOMENTS = [
    *(Moment("before the record", point) for point in UNRECORDED[1:]),
    *(Moment("first touch", point, nth) for point in FIRST_TOUCH for nth in (1, 2)),
    *(Moment("undone", failpoints.MUTATION_POST_TABLE_COMMIT, nth) for nth in (1, 2, 3)),
    Moment("undone", failpoints.RECOVERY_SIDECAR_CONFIRM),
    *(Moment("finished", point) for point in CONFIRMED),
]


@dataclass(frozen=True)
class Accident:
    """Where a write is to crash, where the recoveries after it are, and who recovers."""

    moment: Moment
    recoveries: list[str]
    by_sweep: bool

    def armed(self) -> dict[str, int]:
        """Where it may crash, and at which time that the point is come to.

        Not every write comes to every point, so those of the phases behind it are armed, too. There is no
        write that comes to none of them; one that finds nothing to do has a point of its own.
        """
        phases = list(PHASES)
        later = [point for one in phases[phases.index(self.moment.phase) + 1 :] for point in PHASES[one]]
        nothing = failpoints.MUTATION_POST_NO_EFFECT_PRE_GATE
        return {nothing: 1, **dict.fromkeys(later, 1), self.moment.point: self.moment.nth}


def accidents(*phases: str) -> st.SearchStrategy[Accident | None]:
    moments = [moment for moment in MOMENTS if moment.phase in phases]
    recoveries = st.lists(st.sampled_from(RECOVERING), max_size=2)
    return st.none() | st.builds(Accident, st.sampled_from(moments), recoveries, st.booleans())


ACCIDENTS = accidents(*PHASES)


def crash_at(act: Callable[[], object], times: dict[str, int]) -> str | None:
    """Crash at the first of some points that is come to often enough, and say at which.

    At none if it came to none of them so often, and then it did all of it.
    """
    left, at = dict(times), []

    def come_to(point: str) -> None:
        left[point] -= 1
        if left[point] == 0:
            at.append(point)
            raise Crash

    with suppress(Crash), ExitStack() as armed:
        for point in times:
            armed.enter_context(failpoints.arm(point, partial(come_to, point)))
        act()
    return at[0] if at else None


def open_at(at: Path) -> OpenGraph:
    return OpenGraph.open(Root.at(Location.parse(at)))


def mutation(graph: OpenGraph, text: str, branch: str) -> object:
    compiled = compile_query(f"query q() {{ {text} }}", graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    parameters = decode_parameters(compiled.parameters, {})
    return mutate(graph, compiled, parameters, Author(branch)).commit


class GraphMachine(RuleBasedStateMachine):
    """Does the same to a graph and to dictionaries."""

    template: Path
    fired: ClassVar[Counter[str]] = Counter()
    """The crashes of all lives, by what they broke off."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.template.parent))
        shutil.copytree(self.template, self.folder / "graph")
        self.graph = self.reopened()
        first = World({"a": 1, "b": 3}, frozenset({"a"}), (("a", "b", 2),))
        self.worlds = {MAIN: first, BRANCHES[0]: first}
        self.past: dict[str, dict[str, World]] = {MAIN: {}, BRANCHES[0]: {}}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def reopened(self) -> OpenGraph:
        return open_at(self.folder / "graph")

    # --- writes ----------------------------------------------------------------------------------

    @initialize(since=AGES, crash=accidents("first touch"))
    def first_write_to_a_branch(self, since: int, crash: Accident | None) -> None:
        self.insert_three_tables(sorted(self.worlds).index(BRANCHES[0]), "b", "c", since, crash)

    @rule(branch=st.integers(0, 9), names=st.lists(NAMES, min_size=1, max_size=2), age=AGES, crash=ACCIDENTS)
    def insert_people(self, branch: int, names: list[str], age: int, crash: Accident | None) -> None:
        name = self.chosen(branch)
        world = self.worlds[name]
        text = " ".join(f'insert Person {{ name: "{one}", age: {age} }}' for one in names)
        after = replace(world, people={**world.people, **dict.fromkeys(names, age)})
        self.write(name, lambda: self.mutation(text, name), after, crash)

    @rule(branch=st.integers(0, 9), source=NAMES, end=NAMES, since=AGES, team=NAMES, crash=ACCIDENTS)
    def insert_edge_and_team(
        self, branch: int, source: str, end: str, since: int, team: str, crash: Accident | None
    ) -> None:
        name = self.chosen(branch)
        world = self.worlds[name]
        text = (
            f'insert Team {{ name: "{team}" }} '
            f'insert Knows {{ from: "{source}", to: "{end}", since: {since} }}'
        )
        if {source, end} <= world.people.keys():
            after = replace(world, teams=world.teams | {team}).with_edge((source, end, since))
            self.write(name, lambda: self.mutation(text, name), after, crash)
        else:
            self.refused(lambda: self.mutation(text, name), ConstraintViolation)

    @rule(branch=st.integers(0, 9), source=NAMES, end=NAMES, since=AGES, crash=ACCIDENTS)
    def insert_three_tables(
        self, branch: int, source: str, end: str, since: int, crash: Accident | None
    ) -> None:
        name = self.chosen(branch)
        world = self.worlds[name]
        text = (
            f'insert Person {{ name: "{source}", age: {since} }} '
            f'insert Person {{ name: "{end}", age: 1 }} '
            f'insert Team {{ name: "{source}" }} '
            f'insert Knows {{ from: "{source}", to: "{end}", since: 7 }}'
        )
        people = {**world.people, source: since, end: 1}
        after = replace(world, people=people, teams=world.teams | {source}).with_edge((source, end, 7))
        self.write(name, lambda: self.mutation(text, name), after, crash)

    @rule(branch=st.integers(0, 9), least=AGES, age=AGES, crash=ACCIDENTS)
    def update_people(self, branch: int, least: int, age: int, crash: Accident | None) -> None:
        name = self.chosen(branch)
        world = self.worlds[name]
        text = f"update Person set {{ age: {age} }} where age >= {least}"
        people = {one: age if old is not None and old >= least else old for one, old in world.people.items()}
        self.write(name, lambda: self.mutation(text, name), replace(world, people=people), crash)

    @rule(branch=st.integers(0, 9), doomed=NAMES, crash=ACCIDENTS)
    def delete_person(self, branch: int, doomed: str, crash: Accident | None) -> None:
        name = self.chosen(branch)
        text = f'delete Person where name = "{doomed}"'
        self.write(name, lambda: self.mutation(text, name), self.worlds[name].without({doomed}), crash)

    @rule(branch=st.integers(0, 9), source=NAMES, crash=ACCIDENTS)
    def delete_edges(self, branch: int, source: str, crash: Accident | None) -> None:
        name = self.chosen(branch)
        world = self.worlds[name]
        after = replace(world, edges=tuple(edge for edge in world.edges if edge[0] != source))
        self.write(name, lambda: self.mutation(f'delete Knows where from = "{source}"', name), after, crash)

    @rule(
        branch=st.integers(0, 9),
        mode=st.sampled_from(Mode),
        people=st.dictionaries(NAMES, st.none() | AGES, min_size=1, max_size=3),
        team=st.none() | NAMES,
        crash=ACCIDENTS,
    )
    def load_file(
        self, branch: int, mode: Mode, people: dict[str, int | None], team: str | None, crash: Accident | None
    ) -> None:
        name = self.chosen(branch)
        world = self.worlds[name]
        records = [{"type": "Person", "data": {"name": one, "age": age}} for one, age in people.items()]
        records += [{"type": "Team", "data": {"name": team}}] if team else []
        file = self.folder / "load.jsonl"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))

        def act() -> object:
            return load(self.graph, LoadRequest((file,), mode), Author(name)).commit

        teams = frozenset([team] if team else [])
        match mode:
            case Mode.APPEND if world.people.keys() & people.keys() or world.teams & teams:
                self.refused(act, KeyConflict)
                return
            case Mode.PATCH if people.keys() - world.people.keys() or teams - world.teams:
                self.refused(act, LoadRejected)
                return
            case Mode.OVERWRITE:
                # A person left out is gone: no edge may end there.
                if {end for edge in world.edges for end in edge[:2]} - people.keys():
                    self.refused(act, ConstraintViolation, LoadRejected)
                    return
                after = replace(world, people=people, teams=teams if team else world.teams)
            case _:
                after = replace(world, people={**world.people, **people}, teams=world.teams | teams)
        self.write(name, act, after, crash)

    # --- branches --------------------------------------------------------------------------------

    @precondition(lambda self: set(BRANCHES) - self.worlds.keys())
    @rule(source=st.integers(0, 9), which=st.integers(0, 1), crash=st.booleans())
    def make_branch(self, source: int, which: int, crash: bool) -> None:
        free = sorted(set(BRANCHES) - self.worlds.keys())
        name, origin = free[which % len(free)], self.chosen(source)
        point = failpoints.BRANCH_CREATE_AFTER_MANIFEST_BRANCH_CREATE
        self.control(lambda: create_branch(self.graph, name, from_branch=origin), point if crash else None)
        self.worlds[name] = self.worlds[origin]
        self.past[name] = dict(self.past[origin])

    @precondition(lambda self: len(self.worlds) > 1)
    @rule(
        which=st.integers(0, 1),
        point=st.none()
        | st.sampled_from(
            [failpoints.BRANCH_DELETE_POST_NATIVE, failpoints.BRANCH_DELETE_BEFORE_TABLE_CLEANUP]
        ),
    )
    def remove_branch(self, which: int, point: str | None) -> None:
        made = sorted(self.worlds.keys() - {MAIN})
        name = made[which % len(made)]
        forks = self.graph.root.forks.list(self.graph.root.layout.manifest)
        if any(fork.parent == name for fork in forks.values()) or self.shown_elsewhere(name):
            self.refused(lambda: delete_branch(self.graph, name), OmnigraphError)
            return
        self.control(lambda: delete_branch(self.graph, name), point)
        del self.worlds[name], self.past[name]

    def shown_elsewhere(self, name: str) -> bool:
        others = (self.graph.load(other).state for other in self.worlds if other != name)
        return any(entry.owner == name for state in others for entry in state.entries().values())

    # --- looking ---------------------------------------------------------------------------------

    @rule(branch=st.integers(0, 9), which=st.integers(0, 1000))
    def look_back(self, branch: int, which: int) -> None:
        past = list(self.past[self.chosen(branch)].items())
        if past:
            commit, world = past[which % len(past)]
            assert self.seen(AtCommit(commit)) == world

    @rule()
    def reopen(self) -> None:
        self.graph = self.reopened()

    @invariant()
    def every_branch_is_as_it_should_be(self) -> None:
        assert self.graph.branch_names() == [MAIN, *sorted(self.worlds.keys() - {MAIN})]
        for branch, world in self.worlds.items():
            assert self.seen(AtBranch(branch)) == world
            require_owners(self.graph, branch)
        assert sidecar.operations(self.graph.root) == []

    # --- how -------------------------------------------------------------------------------------

    def chosen(self, number: int) -> str:
        known = sorted(self.worlds)
        return known[number % len(known)]

    def mutation(self, text: str, branch: str) -> object:
        return mutation(self.graph, text, branch)

    def write(self, branch: str, act: Callable[[], object], after: World, crash: Accident | None) -> None:
        before = self.worlds[branch]
        if crash is None:
            act()
            self.settled(branch, after)
            return
        point = crash_at(act, crash.armed())
        assert point is not None, f"the write came to none of the points: {crash}"
        self.fired[next(phase for phase, points in PHASES.items() if point in points)] += 1
        self.graph = self.reopened()
        assert bool(sidecar.operations(self.graph.root)) is (point not in UNRECORDED), (point, crash)
        mark = self.recover(branch, crash)
        found = self.seen(AtBranch(branch))
        outcomes = [after if point in CONFIRMED else before]
        if point == failpoints.MUTATION_POST_TABLE_COMMIT:
            outcomes.append(after)  # it was the last table: then the tables show that the write is complete
        assert found in [replace(one, teams=one.teams | mark) for one in outcomes], (
            f"half a write: {point}, {crash}"
        )
        require_linear(self.graph.load(branch).state.commits.values(), self.commits_after_first(branch))
        self.settled(branch, found)

    def recover(self, branch: str, crash: Accident) -> frozenset[str]:
        """Opening the graph for writing, or the next write, recovers it."""

        def act() -> object:
            if crash.by_sweep:
                return sweep(self.graph, only_forward=False)
            return self.mutation('insert Team { name: "next" }', branch)

        if sidecar.operations(self.graph.root):
            for point in crash.recoveries:
                armed = dict.fromkeys(RECOVERING[RECOVERING.index(point) :], 1)
                assert crash_at(act, armed) is not None, f"the recovery came to none of {list(armed)}"
                self.fired[IN_A_RECOVERY] += 1
                self.graph = self.reopened()
        act()
        return frozenset() if crash.by_sweep else frozenset({"next"})

    def control(self, act: Callable[[], object], point: str | None) -> None:
        if point is None:
            act()
        elif crash_at(act, {point: 1}):
            self.graph = self.reopened()

    def refused(self, act: Callable[[], object], *errors: type[OmnigraphError]) -> None:
        with pytest.raises(errors):
            act()

    def settled(self, branch: str, world: World) -> None:
        self.worlds[branch] = world
        head = self.graph.load(branch).state.head
        assert head is not None
        self.past[branch][head.id] = world

    def commits_after_first(self, branch: str) -> list[str]:
        return [commit.id for commit in self.graph.load(branch).state.commits.values() if commit.parent]

    def seen(self, target: ReadTarget) -> World:
        snapshot = self.graph.snapshot(target)
        people, teams, knows = (
            open_table(self.graph, snapshot, key).scan().to_pylist()
            for key in ("node:Person", "node:Team", "edge:Knows")
        )
        for rows in (people, teams, knows):
            twice = [id for id, times in Counter(row["id"] for row in rows).items() if times > 1]
            assert not twice
        return World(
            {row["name"]: row["age"] for row in people},
            frozenset(row["name"] for row in teams),
            tuple(sorted((row["src"], row["dst"], row["since"]) for row in knows)),
        )


@pytest.mark.fuzz
class TestModel(GraphMachine.TestCase):  # type: ignore[valid-type, misc]  # Hypothesis makes it at run time
    """Random lives of a graph."""

    settings = settings(max_examples=max(30, EXAMPLES // 10), stateful_step_count=20, deadline=None)

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def template(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        """A small graph, with a branch that has no tables of its own; each life begins with a copy of it."""
        GraphMachine.template = tmp_path_factory.mktemp("lives") / "template"
        create_graph(Root.at(Location.parse(GraphMachine.template)), SCHEMA)
        graph = open_at(GraphMachine.template)
        mutation(graph, BEGINNING, MAIN)
        create_branch(graph, BRANCHES[0])

    def runTest(self) -> None:  # noqa: N802 - the name that unittest calls
        GraphMachine.fired.clear()
        super().runTest()
        assert GraphMachine.fired.keys() == {*PHASES, IN_A_RECOVERY}, "crashes of some kind were never tried"
