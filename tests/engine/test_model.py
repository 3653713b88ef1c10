"""A graph against plain dictionaries: random writes, branches, looks at the past, and crashes."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from omnigraph import failpoints
from omnigraph.engine.branches import create_branch, delete_branch
from omnigraph.engine.initialise import initialise
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.load.run import load
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import AtBranch, AtCommit, OpenGraph, Target
from omnigraph.engine.pinned import open_table
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.sweep import sweep
from omnigraph.engine.root import Root
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import ConstraintViolation, KeyConflict, LoadRejected, OmnigraphError
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.lang.query.parameters import decode_parameters
from omnigraph.storage.location import Location
from tests.engine.graphs import require_linear
from tests.examples import EXAMPLES

SCHEMA = """
node Person { name: String @key  age: I32? }
node Team { name: String @key }
edge Knows: Person -> Person { since: I32? }
"""

NAMES = st.sampled_from("abcde")
AGES = st.integers(0, 4)
BRANCHES = ("left", "right")

# Several times where recovery has most to do.
UNRECORDED = (
    failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE,
    failpoints.RECOVERY_SIDECAR_WRITE,
)
"""A write that dies here was never begun: nobody knows of it."""
UNCONFIRMED = (
    failpoints.MUTATION_POST_SIDECAR_PRE_FORK,
    failpoints.MUTATION_POST_FORK_PRE_COMMIT,
    failpoints.FORK_POST_CREATE_PRE_OPEN,
    *[failpoints.MUTATION_POST_TABLE_COMMIT] * 3,
    failpoints.RECOVERY_SIDECAR_CONFIRM,
)
"""One that dies here is undone: its record does not say that all tables have moved."""
CONFIRMED = (
    *[failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER] * 2,
    failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND,
    failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
    failpoints.RECOVERY_SIDECAR_DELETE,
)
"""One that dies here is finished, or is visible already."""
LATER_POINTS = (
    failpoints.RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH,
    failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH,
    failpoints.GRAPH_PUBLISH_BEFORE_COMMIT_APPEND,
    failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
    failpoints.RECOVERY_RECORD_AUDIT,
)

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


@dataclass(frozen=True)
class Accident:
    """Where a write crashes, whether the recovery after it crashes too, and who recovers."""

    point: str
    nth: int
    again: str | None
    by_sweep: bool


ACCIDENTS = st.none() | st.builds(
    Accident,
    st.sampled_from((*UNRECORDED, *UNCONFIRMED, *CONFIRMED)),
    st.sampled_from((1, 1, 2)),
    st.none() | st.sampled_from(LATER_POINTS),
    st.booleans(),
)


def crash_at(nth: int) -> Callable[[], None]:
    left = [nth]

    def act() -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Crash

    return act


class GraphMachine(RuleBasedStateMachine):
    """Does the same to a graph and to dictionaries."""

    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.template.parent))
        shutil.copytree(self.template, self.folder / "graph")
        self.graph = self.reopened()
        self.worlds = {MAIN: World()}
        self.past: dict[str, dict[str, World]] = {MAIN: {}}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def reopened(self) -> OpenGraph:
        return OpenGraph.open(Root.at(Location.parse(self.folder / "graph")))

    # --- writes ----------------------------------------------------------------------------------

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
            case Mode.OVERWRITE:
                # Whoever is left out is gone: no edge may end there.
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
        assert sidecar.operations(self.graph.root) == []

    # --- how -------------------------------------------------------------------------------------

    def chosen(self, number: int) -> str:
        known = sorted(self.worlds)
        return known[number % len(known)]

    def mutation(self, text: str, branch: str) -> object:
        compiled = compile_query(f"query q() {{ {text} }}", self.graph.schema().catalog)
        assert isinstance(compiled, CompiledMutation)
        parameters = decode_parameters(compiled.parameters, {})
        return mutate(self.graph, compiled, parameters, Author(branch)).commit

    def write(self, branch: str, act: Callable[[], object], after: World, crash: Accident | None) -> None:
        before = self.worlds[branch]
        if crash is None or not self.crashes(act, crash.point, crash.nth):
            if crash is None:
                act()
            self.settled(branch, after)
            return
        self.graph = self.reopened()
        assert bool(sidecar.operations(self.graph.root)) is (crash.point not in UNRECORDED), crash
        mark = self.recover(branch, crash)
        found = self.seen(AtBranch(branch))
        world = after if crash.point in CONFIRMED else before
        assert found == replace(world, teams=world.teams | mark), f"half a write, or the other half: {crash}"
        require_linear(self.graph.load(branch).state.commits.values(), self.commits_after_first(branch))
        self.settled(branch, found)

    def recover(self, branch: str, crash: Accident) -> frozenset[str]:
        """Whoever opens the graph for writing, or whoever writes next, brings it in order."""

        def act() -> object:
            if crash.by_sweep:
                return sweep(self.graph, only_forward=False)
            return self.mutation('insert Team { name: "next" }', branch)

        if crash.again is None:
            act()
        elif self.crashes(act, crash.again, 1):
            self.graph = self.reopened()
            act()
        return frozenset() if crash.by_sweep else frozenset({"next"})

    def crashes(self, act: Callable[[], object], point: str, nth: int) -> bool:
        """Whether it came to the point so often; if not, it did what it should."""
        with failpoints.armed(point, crash_at(nth)):
            try:
                act()
            except Crash:
                return True
        return False

    def control(self, act: Callable[[], object], point: str | None) -> None:
        if point is None:
            act()
        elif self.crashes(act, point, 1):
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

    def seen(self, target: Target) -> World:
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

    settings = settings(max_examples=max(1, EXAMPLES // 10), stateful_step_count=15, deadline=None)

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def template(cls, tmp_path_factory: pytest.TempPathFactory) -> None:
        """An empty graph; each life begins with a copy of it."""
        GraphMachine.template = tmp_path_factory.mktemp("lives") / "template"
        initialise(Root.at(Location.parse(GraphMachine.template)), SCHEMA)
