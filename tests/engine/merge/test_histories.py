"""Random histories of many branches: merges, criss-cross merges, branches deleted and made again in between.

A model keeps the whole history, as no graph does: what each commit held and what it was made from. It says at
which commits a merge starts and what must come of it, entity by entity.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.changes.comparison import RunnerChoice
from omnigraph.engine.commit.plan import DeleteRows, Effect, UpsertRows
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.merge.choices import MergeGranularity, MergeSide, Strategies
from omnigraph.engine.merge.merge import MergeRequest, merge, preview
from omnigraph.engine.write.transaction import Author, PreparedWrite
from omnigraph.errors import MergeConflicts
from omnigraph.history import Commits
from omnigraph.storage.location import Location
from tests.engine.changes.world import few_rows_at_once
from tests.engine.writing import write
from tests.examples import EXAMPLES

SCHEMA = "node P { k: String @key  a: I32?  b: I32? }"
KEY = "node:P"
NAMES = ("b1", "b2", "b3", "b4", "b5")
STEPS = 45

Row = tuple[int | None, int | None]
Rows = dict[str, Row]
Kind = Literal["divergent_insert", "divergent_update", "delete_vs_update"]


# --- the model -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A commit: what there was, and what it was made from."""

    rows: Rows
    parents: tuple[str, ...]
    order: tuple[int, str]


History = Mapping[str, Moment]


@dataclass(frozen=True)
class Base:
    """What a merge starts from, and the entities whose base is unknown."""

    rows: Rows
    disputed: frozenset[str] = frozenset()


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
    rows, disputed, taken = dict(history[first].rows), set[str](), [first]
    for one in others:
        base = virtual_base(history, best_common(history, taken, [one]))
        theirs = history[one].rows
        found = merge_rows(base, theirs, rows, MergeGranularity.ROW, None)
        disputed |= found.conflicts.keys()
        rows = found.rows
        rows |= {name: theirs[name] for name in found.conflicts if name not in rows}
        taken.append(one)
    return Base(rows, frozenset(disputed))


@dataclass
class Merged:
    """What a merge comes to; entities in conflict are as the target has them."""

    rows: Rows
    conflicts: dict[str, Kind] = field(default_factory=dict)


def merge_rows(
    base: Base, theirs: Rows, ours: Rows, granularity: MergeGranularity, strategy: MergeSide | None
) -> Merged:
    """The three-way rule, entity by entity."""
    found = Merged(dict(ours))
    for name in sorted(base.rows.keys() | theirs.keys() | ours.keys()):
        was, their, our = (rows.get(name) for rows in (base.rows, theirs, ours))
        result = merged_row(was, their, our, name in base.disputed, granularity, strategy)
        if isinstance(result, str):
            found.conflicts[name] = result
        elif result is None:
            found.rows.pop(name, None)
        else:
            found.rows[name] = result
    return found


def merged_row(
    was: Row | None,
    theirs: Row | None,
    ours: Row | None,
    disputed: bool,
    granularity: MergeGranularity,
    strategy: MergeSide | None,
) -> Row | Kind | None:
    if theirs == ours:
        return ours
    if not disputed and was in (theirs, ours):
        return ours if theirs == was else theirs
    chosen = ours if strategy is MergeSide.OURS else theirs
    if theirs is None or ours is None:
        return chosen if strategy else "delete_vs_update"
    if granularity is MergeGranularity.PROPERTY and was is not None and not disputed:
        cells: list[int | None] = []
        for before, their, our in zip(was, theirs, ours, strict=True):
            if their != our and before not in (their, our) and strategy is None:
                return "divergent_update"
            takes_theirs = our == before or (their != before and strategy is MergeSide.THEIRS)
            cells.append(their if takes_theirs else our)
        return cells[0], cells[1]
    if strategy:
        return chosen
    return "divergent_insert" if was is None else "divergent_update"


# --- a graph beside it -----------------------------------------------------------------------------


class World:
    """A graph and its model, to which the same is done."""

    def __init__(self, folder: Path, random: Random) -> None:
        self.folder = folder
        self.random = random
        self.graph = self.opened()
        self.history: dict[str, Moment] = {}
        self.heads: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self.log: list[str] = []
        self.note(MAIN, {})

    def opened(self) -> OpenGraph:
        return OpenGraph.open(Root.at(Location.parse(self.folder)))

    # --- steps ---

    def step(self) -> None:
        steps = [
            (self.put, 4),
            (self.delete, 2),
            (self.make_branch, 2),
            (self.merge_some, 8),
            (self.cross, 1),
            (self.delete_branch, 1),
            (self.clean_up, 1),
            (self.reopen, 1),
            (self.tidy_up, 1),
        ]
        (chosen,) = self.random.choices([one for one, _ in steps], [weight for _, weight in steps])
        chosen()

    def put(self, branch: str | None = None) -> None:
        at = branch or self.any_branch()
        row = (self.random.choice([0, 1, None]), self.random.choice([0, 1]))
        name = self.random.choice("uvwxyz")
        self.log.append(f"put {at} {name} {row}")
        a, b = (pa.array([value], pa.int32()) for value in row)
        self.write(at, UpsertRows(pa.table({"id": [name], "k": [name], "a": a, "b": b})))
        self.note(at, {**self.rows(at), name: row})

    def delete(self) -> None:
        at = self.any_branch()
        rows = self.rows(at)
        if rows:
            name = self.random.choice(sorted(rows))
            self.log.append(f"delete {at} {name}")
            self.write(at, DeleteRows(pa.array([name])))
            self.note(at, {one: row for one, row in rows.items() if one != name})

    def write(self, branch: str, effect: Effect) -> None:
        write(self.graph, Author(branch), lambda _: PreparedWrite("Mutation", {KEY: effect}, strict=True))

    def make_branch(self) -> None:
        free = sorted(set(NAMES) - self.heads.keys())
        if free:
            name, origin = self.random.choice(free), self.any_branch()
            self.log.append(f"branch {name} from {origin}")
            create_branch(self.graph, name, from_branch=origin)
            self.heads[name], self.origins[name] = self.heads[origin], origin

    def delete_branch(self) -> None:
        free = sorted(self.heads.keys() - {MAIN} - set(self.origins.values()))
        if free:
            name = self.random.choice(free)
            self.log.append(f"delete branch {name}")
            delete_branch(self.graph, name)
            del self.heads[name], self.origins[name]

    def clean_up(self) -> None:
        self.log.append("cleanup")
        cleanup(self.graph, CleanupPolicy(1, None, 0.0))

    def reopen(self) -> None:
        self.graph = self.opened()

    def tidy_up(self) -> None:
        at = self.any_branch()
        self.log.append(f"optimize {at}")
        optimize(self.graph, Author(at))
        self.note(at, self.rows(at))

    def merge_some(self) -> None:
        if len(self.heads) > 1:
            source, target = self.random.sample(sorted(self.heads), 2)
            strategy = self.random.choice([None, MergeSide.OURS, MergeSide.THEIRS])
            self.merge(source, target, strategy, self.random.choice(list(MergeGranularity)))

    def cross(self) -> None:
        """Each of two branches takes in what the other one was."""
        if len(self.heads) < 2 or "kept" in self.heads:
            return
        one, two = self.random.sample(sorted(self.heads), 2)
        self.put(one)
        self.put(two)
        create_branch(self.graph, "kept", from_branch=one)
        self.heads["kept"], self.origins["kept"] = self.heads[one], one
        self.merge(two, one, MergeSide.OURS, MergeGranularity.ROW)
        self.merge("kept", two, self.random.choice(list(MergeSide)[:2]), MergeGranularity.ROW)
        delete_branch(self.graph, "kept")
        del self.heads["kept"], self.origins["kept"]

    def merge(
        self, source: str, target: str, strategy: MergeSide | None, granularity: MergeGranularity
    ) -> None:
        theirs, ours = self.heads[source], self.heads[target]
        bases = best_common(self.history, [theirs], [ours])
        self.log.append(f"merge {source} into {target} {strategy} {granularity} on {len(bases)} bases")
        api = Commits("", lambda: self.graph)
        assert [one.id for one in api.merge_bases(theirs, ours)] == bases
        base = virtual_base(self.history, bases)
        expected = merge_rows(base, self.rows(source), self.rows(target), granularity, strategy)
        request = MergeRequest(
            source, Strategies(strategy), None, granularity, runner_choice=RunnerChoice("local")
        )
        with few_rows_at_once() if self.random.random() < 0.4 else nullcontext():
            shown = preview(self.graph, request, target)
            found = {one.entity_id or "": one.kind.value for one in shown.conflicts}
            if bases == [theirs]:
                assert not merge(self.graph, request, Author(target)).outcome.is_commit
                return
            assert found == expected.conflicts
            if expected.conflicts:
                with pytest.raises(MergeConflicts):
                    merge(self.graph, request, Author(target))
                return
            done = merge(self.graph, request, Author(target))
        assert done.outcome.value == ("fast_forward" if bases == [ours] else "merged")
        self.note(target, expected.rows)

    # --- looking ---

    def any_branch(self) -> str:
        return self.random.choice(sorted(self.heads))

    def rows(self, branch: str) -> Rows:
        return self.history[self.heads[branch]].rows

    def note(self, branch: str, rows: Rows) -> None:
        """Remember the commits that a branch got: all of them leave it as it is now."""
        state = self.graph.load(branch).state
        assert state.head is not None
        step: str | None = state.head.id
        new = []
        while step is not None and step != self.heads.get(branch):
            new.append(state.commits[step])
            step = new[-1].parent
        for commit in new:
            parents = tuple(one for one in (commit.parent, commit.merged_parent) if one is not None)
            self.history[commit.id] = Moment(rows, parents, (commit.created_at, commit.id))
        self.heads[branch] = state.head.id

    def require_right(self) -> None:
        for branch in self.heads:
            table = open_table(self.graph, self.graph.snapshot(AtBranch(branch)), KEY).scan()
            found = {row["id"]: (row["a"], row["b"]) for row in table.to_pylist()}
            assert found == self.rows(branch), branch
            assert table.num_rows == len(found)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty graph; each history begins with a copy of it."""
    at = tmp_path_factory.mktemp("histories") / "template"
    create_graph(Root.at(Location.parse(at)), SCHEMA)
    return at


@pytest.mark.fuzz
@settings(
    max_examples=max(1, EXAMPLES // 16),
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
)
@given(seed=st.integers(0, 2**48))
def test_merges_of_any_history_come_to_what_the_model_says(template: Path, seed: int) -> None:
    with tempfile.TemporaryDirectory(dir=template.parent) as name:
        shutil.copytree(template, Path(name) / "graph")
        world = World(Path(name) / "graph", Random(seed))
        try:
            for _ in range(STEPS):
                world.step()
                world.require_right()
        except BaseException:
            print(f"seed {seed}", *world.log, sep="\n")
            raise
