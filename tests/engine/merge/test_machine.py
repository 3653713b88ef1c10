"""Merges against plain dictionaries: random branches, merges of merges, crossing ones, upkeep and crashes."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from omnigraph import errors, failpoints
from omnigraph.engine.branches.manage import create_branch, create_branch_at, delete_branch
from omnigraph.engine.branches.tags import create_tag, delete_tag
from omnigraph.engine.changes.comparison import RunnerChoice
from omnigraph.engine.commit.plan import DeleteRows
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.sweep import sweep
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, AtCommit, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.merge.merge import MergeRequest, merge
from omnigraph.engine.merge.merge_inputs import capture_source, find_merge_inputs
from omnigraph.engine.merge.result import MergeResult
from omnigraph.engine.write.transaction import Author, PreparedWrite
from omnigraph.errors import CommitNotFound, HistoricalVersionReclaimed, MergeConflicts
from omnigraph.history import Commits
from omnigraph.storage.location import Location
from tests.engine.changes.world import few_rows_at_once
from tests.engine.crash.world import change
from tests.engine.graphs import require_owners
from tests.engine.test_model import crash_at
from tests.engine.writing import write
from tests.examples import EXAMPLES

SCHEMA = """
node Person { name: String @key  age: I32?  nick: String? @unique }
edge Knows: Person -> Person { since: I32? }
"""
PERSON, KNOWS = "node:Person", "edge:Knows"
ROW_KINDS = {"divergent_insert", "divergent_update", "delete_vs_update"}

NAMES, NICKS, EDGES = (
    st.sampled_from("abcd"),
    st.none() | st.sampled_from("xy"),
    st.sampled_from(["k1", "k2"]),
)
AGES = st.integers(0, 2)
BRANCHES = ("left", "right", "third", "fourth")
ANY = st.integers(0, 11)
"""Which of the branches that there are."""
PAST = st.integers(0, 400)
"""Which of the commits that there were."""
TAGS = st.sampled_from(["v1", "rel/2"])

POINTS = (
    failpoints.BRANCH_MERGE_POST_CANDIDATE_VALIDATION,
    failpoints.RECOVERY_SIDECAR_WRITE,
    failpoints.MUTATION_POST_FORK_PRE_COMMIT,
    failpoints.MUTATION_POST_TABLE_COMMIT,
    failpoints.BRANCH_MERGE_ADOPT_AFTER_UPSERT_PRE_DELETE,
    failpoints.BRANCH_MERGE_POST_EFFECTS_PRE_CONFIRM,
    failpoints.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT,
    failpoints.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
    failpoints.RECOVERY_SIDECAR_DELETE,
)
LATER_POINTS = (failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH, failpoints.RECOVERY_RECORD_AUDIT)
CRASHES = st.none() | st.tuples(st.sampled_from(POINTS), st.none() | st.sampled_from(LATER_POINTS))


def from_on(points: Sequence[str], first: str) -> dict[str, int]:
    """A point and those behind it: not every merge comes to each of them."""
    return dict.fromkeys(points[points.index(first) :], 1)


Row = tuple[object, ...]
Conflict = tuple[str, str, str]


# --- the naive model -------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """All there is on a branch, by id: people as (age, nick), edges as (from, to, since)."""

    people: Mapping[str, Row] = field(default_factory=dict)
    edges: Mapping[str, Row] = field(default_factory=dict)

    def without(self, name: str) -> World:
        """Without a person and all their edges."""
        edges = {one: row for one, row in self.edges.items() if name not in row[:2]}
        return World({one: row for one, row in self.people.items() if one != name}, edges)

    def broken(self) -> set[Conflict]:
        """What no branch may ever be."""
        lost = {one for one, row in self.edges.items() if not {row[0], row[1]} <= self.people.keys()}
        nicks = [row[1] for row in self.people.values() if row[1] is not None]
        twice = {("", "", "unique_violation")} if len(nicks) > len(set(nicks)) else set()
        return {(KNOWS, one, "orphan_edge") for one in lost} | twice


Entity = tuple[str, str]
"""A table and an id."""
Entities = dict[Entity, Row]


def entities_of(world: World) -> Entities:
    people = {(PERSON, one): row for one, row in world.people.items()}
    return {**people, **{(KNOWS, one): row for one, row in world.edges.items()}}


def world_of(entities: Entities) -> World:
    people = {one: row for (key, one), row in entities.items() if key == PERSON}
    return World(people, {one: row for (key, one), row in entities.items() if key == KNOWS})


@dataclass(frozen=True)
class Base:
    """What a merge starts from, and the entities whose base is unknown."""

    entities: Entities
    disputed: frozenset[Entity] = frozenset()


def merged_entities(base: Base, source: Entities, target: Entities) -> tuple[Entities, dict[Entity, str]]:
    """Row by row: who alone changed something is right, and who both changed it must agree.

    What they do not agree on is left as the target has it, or the source where the target has nothing.
    """
    rows, conflicts = dict(target), {}
    for one in base.entities.keys() | source.keys() | target.keys():
        was, theirs, ours = base.entities.get(one), source.get(one), target.get(one)
        if theirs == ours or (theirs == was and one not in base.disputed):
            continue
        if ours != was or one in base.disputed:
            gone = theirs is None or ours is None
            kind = "delete_vs_update" if gone else "divergent_insert" if was is None else "divergent_update"
            conflicts[one] = kind
            theirs = theirs if ours is None else ours
        if theirs is None:
            del rows[one]
        else:
            rows[one] = theirs
    return rows, conflicts


def merged_worlds(base: Base, source: World, target: World) -> tuple[World, set[Conflict]]:
    rows, conflicts = merged_entities(base, entities_of(source), entities_of(target))
    after = world_of(rows)
    return after, {(key, one, kind) for (key, one), kind in conflicts.items()} or after.broken()


@dataclass(frozen=True)
class Moment:
    """A commit: what there was, where it came from, and how it sorts among others."""

    world: World
    parents: tuple[str, ...]
    order: tuple[int, str]


History = Mapping[str, Moment]


def ancestors_of(history: History, starts: Iterable[str]) -> set[str]:
    found: set[str] = set()
    new = set(starts)
    while new:
        found |= new
        new = {parent for one in new for parent in history[one].parents} - found
    return found


def best_common(history: History, ours: Iterable[str], theirs: Iterable[str]) -> list[str]:
    """The common ancestors that no other common ancestor descends from, newest first."""
    common = ancestors_of(history, ours) & ancestors_of(history, theirs)
    older = {one for two in common for one in ancestors_of(history, history[two].parents)}
    return sorted(common - older, key=lambda one: history[one].order, reverse=True)


def virtual_base(history: History, bases: Sequence[str]) -> Base:
    """What several bases come to, merged with each other on the base that they have in common."""
    first, *others = bases
    rows, disputed, taken = entities_of(history[first].world), set[Entity](), [first]
    for one in others:
        base = virtual_base(history, best_common(history, taken, [one]))
        rows, conflicts = merged_entities(base, entities_of(history[one].world), rows)
        disputed |= conflicts.keys()
        taken.append(one)
    return Base(rows, frozenset(disputed))


# --- a graph ---------------------------------------------------------------------------------------


def put(graph: OpenGraph, folder: Path, world: World, branch: str) -> None:
    """Insert or replace what is named, in one commit."""
    records: list[dict[str, object]] = [
        {"type": "Person", "data": {"name": one, "age": age, "nick": nick}}
        for one, (age, nick) in world.people.items()
    ]
    records += [
        {"edge": "Knows", "from": source, "to": end, "data": {"id": one, "since": since}}
        for one, (source, end, since) in world.edges.items()
    ]
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    load(graph, LoadRequest((file,), Mode.MERGE), Author(branch))


def visible_rows(graph: OpenGraph, branch: str | AtCommit) -> World:
    snapshot = graph.snapshot(AtBranch(branch) if isinstance(branch, str) else branch)
    people, knows = (open_table(graph, snapshot, key).scan().to_pylist() for key in (PERSON, KNOWS))
    found = World(
        {row["id"]: (row["age"], row["nick"]) for row in people},
        {row["id"]: (row["src"], row["dst"], row["since"]) for row in knows},
    )
    assert (len(found.people), len(found.edges)) == (len(people), len(knows)), "an id is there twice"
    return found


def take_in(graph: OpenGraph, source: str, into: str, *, in_buckets: bool) -> MergeResult:
    with few_rows_at_once() if in_buckets else nullcontext():
        return merge(graph, MergeRequest(source, runner_choice=RunnerChoice("local")), Author(into))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty graph; each run begins with a copy of it."""
    at = tmp_path_factory.mktemp("merges") / "template"
    create_graph(Root.at(Location.parse(at)), SCHEMA)
    return at


class MergeMachine(RuleBasedStateMachine):
    """Does the same to a graph and to dictionaries."""

    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir=self.template.parent))
        shutil.copytree(self.template, self.folder / "graph")
        self.graph = self.reopened()
        self.in_buckets = False
        self.history: dict[str, Moment] = {}
        self.heads: dict[str, str] = {}
        self.past: list[str] = []
        """Commits that were the head of a branch while the model looked."""
        self.tags: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.note(MAIN, World())
        self.written(MAIN, World(people={"a": (0, None), "b": (0, None)}, edges={"k1": ("a", "b", 0)}))
        self.branch("left", MAIN)
        self.branch("right", MAIN)

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def taken_in(self, source: str, target: str) -> MergeResult:
        return take_in(self.graph, source, target, in_buckets=self.in_buckets)

    def reopened(self) -> OpenGraph:
        return OpenGraph.open(Root.at(Location.parse(self.folder / "graph")))

    # --- writes ----------------------------------------------------------------------------------

    @rule(branch=ANY, name=NAMES, age=AGES, nick=NICKS)
    def put_person(self, branch: int, name: str, age: int, nick: str | None) -> None:
        at = self.chosen(branch)
        taken = {row[1] for one, row in self.world(at).people.items() if one != name}
        self.written(at, World(people={name: (age, None if nick in taken else nick)}))

    @rule(branch=ANY, edge=EDGES, source=NAMES, end=NAMES, since=AGES)
    def put_edge(self, branch: int, edge: str, source: str, end: str, since: int) -> None:
        at = self.chosen(branch)
        missing = {one: (0, None) for one in (source, end) if one not in self.world(at).people}
        self.written(at, World(missing, {edge: (source, end, since)}))

    @rule(branch=ANY, name=NAMES)
    def delete_person(self, branch: int, name: str) -> None:
        at = self.chosen(branch)
        change(self.graph, f'delete Person where name = "{name}"', at)
        self.note(at, self.world(at).without(name))

    @rule(branch=ANY, edge=EDGES)
    def delete_edge(self, branch: int, edge: str) -> None:
        at = self.chosen(branch)
        world = self.world(at)
        if edge in world.edges:
            gone = {KNOWS: DeleteRows(pa.array([edge]))}
            write(self.graph, Author(at), lambda _: PreparedWrite("Mutation", gone, strict=True))
            self.note(at, replace(world, edges={k: row for k, row in world.edges.items() if k != edge}))

    @precondition(lambda self: set(BRANCHES) - self.heads.keys())
    @rule(source=ANY)
    def make_branch(self, source: int) -> None:
        self.branch(min(set(BRANCHES) - self.heads.keys()), self.chosen(source))

    @precondition(lambda self: set(BRANCHES) - self.heads.keys())
    @rule(commit=PAST)
    def make_branch_at_an_old_commit(self, commit: int) -> None:
        """It shows the commit, or nothing is made because its rows were cleaned up or its branch is gone."""
        name = min(set(BRANCHES) - self.heads.keys())
        old = self.past[commit % len(self.past)]
        shown = any(old in self.graph.load(branch).state.commits for branch in self.heads)
        try:
            create_branch_at(self.graph, name, self.graph.snapshot(AtCommit(old)))
        except (CommitNotFound, errors.Conflict):
            assert not shown
        except HistoricalVersionReclaimed:
            assert old not in self.tags.values()
        else:
            self.heads[name] = old
            fork = self.graph.root.forks.find(self.graph.root.layout.manifest, name)
            assert fork is not None
            self.origins[name] = fork.parent or MAIN

    @rule(tag=TAGS, commit=PAST)
    def tag_a_commit(self, tag: str, commit: int) -> None:
        old = self.past[commit % len(self.past)]
        try:
            create_tag(self.graph, tag, self.graph.snapshot(AtCommit(old)), force=True)
        except (CommitNotFound, HistoricalVersionReclaimed):
            assert old not in self.tags.values()
        else:
            self.tags[tag] = old

    @precondition(lambda self: self.tags)
    @rule(which=ANY)
    def delete_a_tag(self, which: int) -> None:
        tag = sorted(self.tags)[which % len(self.tags)]
        delete_tag(self.graph, tag)
        del self.tags[tag]

    @precondition(lambda self: len(self.heads) > 2)
    @rule(branch=ANY)
    def delete_a_branch(self, branch: int) -> None:
        """One that no other branch was made from; its commits can no longer be read."""
        free = sorted(self.heads.keys() - {MAIN} - set(self.origins.values()))
        if free:
            self.gone(free[branch % len(free)])

    @rule()
    def clean_up(self) -> None:
        cleanup(self.graph, CleanupPolicy(1, None, 0.0))

    @rule(branch=ANY)
    def tidy_up(self, branch: int) -> None:
        at = self.chosen(branch)
        optimize(self.graph, Author(at))
        self.note(at, self.world(at))

    @rule()
    def reopen(self) -> None:
        self.graph = self.reopened()

    # --- merges ----------------------------------------------------------------------------------

    @rule(wanted=st.booleans())
    def merge_in_buckets(self, wanted: bool) -> None:
        """From now on merges are worked out at once, or as those of very many rows are."""
        self.in_buckets = wanted

    @rule(source=ANY, into=ANY, crash=CRASHES)
    def merge_branches(self, source: int, into: int, crash: tuple[str, str | None] | None) -> None:
        self.merged(*self.two(source, into), crash)

    @rule(source=ANY, into=ANY, names=st.lists(NAMES, min_size=2, max_size=2), age=AGES, crash=CRASHES)
    def part_and_merge(
        self, source: int, into: int, names: list[str], age: int, crash: tuple[str, str | None] | None
    ) -> None:
        """Both change a person, mostly different ones; then each is merged into the other."""
        theirs, ours = self.two(source, into)
        for at, name in zip((theirs, ours), names, strict=True):
            self.written(at, World(people={name: (age, None)}))
        self.merged(theirs, ours, crash)
        self.merged(ours, theirs, None)

    @rule(which=ANY, names=st.lists(NAMES, min_size=2, max_size=2, unique=True), later=ANY, crash=CRASHES)
    def cross(self, which: int, names: list[str], later: int, crash: tuple[str, str | None] | None) -> None:
        """Each of two branches takes in what the other one was: after that two ancestors are as near."""
        first, second = self.two(which, which // 3)
        for at, name in zip((first, second), names, strict=True):
            self.written(at, World(people={name: (3, None)}))
        self.branch("kept", first)
        self.merged(second, first, crash)
        self.merged("kept", second, None)
        self.gone("kept")
        self.written(first, World(people={names[later % 2]: (4, None)}))
        self.merged(first, second, None)

    @precondition(lambda self: len(self.heads) > 2)
    @rule(which=ANY, name=NAMES, crash=CRASHES)
    def spread(self, which: int, name: str, crash: tuple[str, str | None] | None) -> None:
        """Two branches take in a third one, and one of them goes on from there."""
        known = sorted(self.heads)
        origin, first, second = (known[(which + step) % len(known)] for step in range(3))
        self.written(origin, World(people={name: (5, None)}))
        self.merged(origin, first, crash)
        self.merged(origin, second, None)
        self.written(first, World(people={name: (6, None)}))
        self.merged(first, second, None)

    def merged(self, source: str, target: str, crash: tuple[str, str | None] | None) -> None:
        """Merge two branches, of which the model knows what must come of it."""
        theirs, ours = self.heads[source], self.heads[target]
        bases = best_common(self.history, [theirs], [ours])
        self.require_bases(source, target, bases)
        base, before = bases[0], self.world(target)
        after, conflicts = merged_worlds(virtual_base(self.history, bases), self.world(source), before)
        if base != theirs and conflicts:
            self.refused(source, target, conflicts)
            return
        point, again = crash or (None, None)
        if point is not None and crash_at(lambda: self.taken_in(source, target), from_on(POINTS, point)):
            self.recover(again)
            found = visible_rows(self.graph, target)
            assert found in (before, after), f"half a merge after {crash}"
            self.note(target, found, merged=theirs)
            self.require_made(source, target)
            return
        if point is None:
            done = self.taken_in(source, target)
            wanted = "already_up_to_date" if base == theirs else "fast_forward" if base == ours else "merged"
            assert done.outcome.value == wanted
            assert (done.commit is None) == (base == theirs)
        self.note(target, before if base == theirs else after, merged=theirs)
        assert self.taken_in(source, target).outcome.value == "already_up_to_date"
        if base == ours:
            assert self.world(target) == self.world(source)

    def require_bases(self, source: str, target: str, bases: list[str]) -> None:
        """A merge and the API start at the same commits, also after branches were deleted."""
        at = find_merge_inputs(
            self.graph, capture_source(self.graph, source), self.graph.snapshot(AtBranch(target))
        )
        assert [one.id for one in at.base.commits] == bases
        api = Commits("", lambda: self.graph)
        assert [one.id for one in api.merge_bases(self.heads[source], self.heads[target])] == bases

    def refused(self, source: str, target: str, conflicts: set[Conflict]) -> None:
        with pytest.raises(MergeConflicts) as error:
            self.taken_in(source, target)
        found = {
            (one.table_key, one.entity_id or "", one.kind.value)
            for one in error.value.conflicts
            if not (conflicts_of_rows(conflicts) and one.kind.value not in ROW_KINDS)
        }
        uniques = {one for one in found if one[2] == "unique_violation"}
        reported = (found - uniques) | ({("", "", "unique_violation")} if uniques else set())
        assert reported == conflicts
        assert self.head(target).id == self.heads[target]

    def require_made(self, source: str, target: str) -> None:
        """After a crash: what was finished is known to be, and what was undone can be merged."""
        theirs, ours = self.heads[source], self.heads[target]
        bases = best_common(self.history, [theirs], [ours])
        base = bases[0]
        after, _ = merged_worlds(virtual_base(self.history, bases), self.world(source), self.world(target))
        done = self.taken_in(source, target)
        assert (done.commit is None) == (base == theirs)
        self.note(target, self.world(target) if base == theirs else after, merged=theirs)

    # --- looking ---------------------------------------------------------------------------------

    @invariant()
    def every_branch_is_as_it_should_be(self) -> None:
        for branch, head in self.heads.items():
            assert visible_rows(self.graph, branch) == self.world(branch), branch
            assert self.head(branch).id == head
            assert not self.world(branch).broken()
            require_owners(self.graph, branch)
        assert sidecar.operations(self.graph.root) == []

    @invariant()
    def every_tag_reads_as_its_commit_was_made(self) -> None:
        for tag, commit in self.tags.items():
            assert visible_rows(self.graph, AtCommit(tag)) == self.history[commit].world, tag

    # --- how -------------------------------------------------------------------------------------

    def chosen(self, number: int) -> str:
        known = sorted(self.heads)
        return known[number % len(known)]

    def two(self, source: int, into: int) -> tuple[str, str]:
        target = self.chosen(into)
        others = sorted(self.heads.keys() - {target})
        return others[source % len(others)], target

    def branch(self, name: str, origin: str) -> None:
        create_branch(self.graph, name, from_branch=origin)
        self.heads[name] = self.heads[origin]
        self.origins[name] = origin

    def gone(self, name: str) -> None:
        delete_branch(self.graph, name)
        del self.heads[name], self.origins[name]

    def world(self, branch: str) -> World:
        return self.history[self.heads[branch]].world

    def head(self, branch: str) -> Commit:
        found = self.graph.load(branch).state.head
        assert found is not None
        return found

    def written(self, branch: str, rows: World) -> None:
        put(self.graph, self.folder, rows, branch)
        now = self.world(branch)
        self.note(branch, World({**now.people, **rows.people}, {**now.edges, **rows.edges}))

    def note(self, branch: str, world: World, merged: str | None = None) -> None:
        """Remember the commits that a branch got; all of them leave it as it is now, but for undone ones."""
        known = self.graph.load(branch).state.commits
        head, old = self.head(branch), self.heads.get(branch)
        assert old is not None or head.parent is None
        was = self.history[old].world if old is not None else world
        new: list[Commit] = []
        step: str | None = head.id
        while step is not None and step != old:
            new.append(known[step])
            step = known[step].parent
        assert step == old, "the branch does not go on from where it was"
        if world != was:
            assert new, "nothing was committed"
        taken = [commit.merged_parent for commit in new if commit.merged_parent is not None]
        assert taken in ([], [merged])
        assert taken or merged is None or world == was, "a merge does not record what it includes"
        for commit in reversed(new):
            parents = tuple(one for one in (commit.parent, commit.merged_parent) if one is not None)
            self.history[commit.id] = Moment(world, parents, (commit.created_at, commit.id))
        self.heads[branch] = head.id
        if head.id not in self.past:
            self.past.append(head.id)

    def recover(self, again: str | None) -> None:
        """Opening the graph for writing recovers it, the second time at the latest."""
        self.graph = self.reopened()
        if again is not None and crash_at(
            lambda: sweep(self.graph, only_forward=False), from_on(LATER_POINTS, again)
        ):
            self.graph = self.reopened()
        sweep(self.graph, only_forward=False)


def conflicts_of_rows(conflicts: Iterable[Conflict]) -> bool:
    return any(kind in ROW_KINDS for _, _, kind in conflicts)


@pytest.mark.fuzz
class TestMerges(MergeMachine.TestCase):  # type: ignore[valid-type, misc]  # Hypothesis makes it at run time
    """Random histories."""

    settings = settings(max_examples=max(1, EXAMPLES // 12), stateful_step_count=12, deadline=None)

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _template(cls, template: Path) -> None:
        MergeMachine.template = template


# --- two branches that have nothing to do with each other --------------------------------------------


def deltas(names: str, edge: str) -> st.SearchStrategy[tuple[World, frozenset[str]]]:
    """New and changed people with an edge between them, and people who go."""
    rows = st.tuples(AGES, st.none())
    people = st.dictionaries(st.sampled_from(names), rows, min_size=1, max_size=2)
    linked = people.map(lambda found: World(found, {edge: (min(found), max(found), 1)}))
    return st.tuples(linked, st.frozensets(st.sampled_from(names), max_size=1))


@pytest.mark.fuzz
@settings(max_examples=max(1, EXAMPLES // 30))
@given(left=deltas("abc", "k1"), right=deltas("xyz", "k2"))
def test_branches_without_anything_in_common_can_be_merged_in_any_order(
    template: Path, left: tuple[World, frozenset[str]], right: tuple[World, frozenset[str]]
) -> None:
    with tempfile.TemporaryDirectory(dir=template.parent) as name:
        shutil.copytree(template, Path(name) / "graph")
        graph = OpenGraph.open(Root.at(Location.parse(Path(name) / "graph")))
        put(graph, Path(name), World(dict.fromkeys("abcxyz", (0, None))), MAIN)
        expected = visible_rows(graph, MAIN)
        for branch, (rows, gone) in {"left": left, "right": right}.items():
            create_branch(graph, branch)
            put(graph, Path(name), rows, branch)
            expected = World({**expected.people, **rows.people}, {**expected.edges, **rows.edges})
            for one in gone:
                change(graph, f'delete Person where name = "{one}"', branch)
                expected = expected.without(one)
        for target, order in {"first": ("left", "right"), "second": ("right", "left")}.items():
            create_branch(graph, target)
            for source in order:
                take_in(graph, source, target, in_buckets=False)
        assert visible_rows(graph, "first") == visible_rows(graph, "second") == expected
