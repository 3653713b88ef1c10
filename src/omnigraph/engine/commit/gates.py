"""The gates of the commit protocol: what must hold, under the branch's lock, before the first effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.plan import AdoptVersion, CommitPlan, CreateTable, is_first_touch, make_base
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.drift import find_drift, resolve_drift
from omnigraph.engine.commit.recovery.sweep import has_records, recover_branch
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.schema_files import read_schema_hash
from omnigraph.errors import (
    Conflict,
    OmnigraphError,
    ReadSetChanged,
    StorageFailure,
    TableVersionConflict,
)
from omnigraph.storage.concurrency import Together
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import read_transaction


class BaseMoved(Exception):
    """The base of a plan has moved; nothing was done, and the write may be prepared again.

    `by_rival` is false when no row changed: an interrupted write was recovered, or upkeep ran. Then even a
    write that read what it replaces is prepared again.
    """

    def __init__(self, conflict: OmnigraphError, *, by_rival: bool = True) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict
        self.by_rival = by_rival


class InterruptedWrites(Exception):
    """There are records of interrupted writes to the branch, beside that of the plan."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


def check_gates(
    graph: OpenGraph, plan: CommitPlan, held: HeldLocks, beside: Callable[[], None] | None = None
) -> Passed:
    """Recover interrupted writes on the branch, then check what the plan depends on.

    `beside` is called at the same time as the reads; it may store the record of the plan. Then writes that
    were interrupted raise `InterruptedWrites` instead: that record has to go before they are recovered.
    """
    found = _look(graph, plan, beside)
    others = sidecar.without_running(found.names)
    if beside is not None and has_records(graph, plan.branch, others):
        raise InterruptedWrites(others)
    if recover_branch(graph, plan.branch, held, others):
        raise moved_by_recovery(plan, "recovered")
    _check_base(graph, plan, found.loaded, found.schema_hash)
    _check_heads(graph, plan, held, found.drifted)
    return Passed(rebase_plan(plan, found.loaded), found.loaded, saw_others=bool(others))


@dataclass(frozen=True, slots=True)
class Passed:
    """A plan that the gates let pass; all of it stays valid while the lock is held."""

    plan: CommitPlan
    """The plan on the branch as it is."""
    base: LoadedBranch
    """The branch as it is."""
    saw_others: bool
    """Whether there are records of other branches, of running or interrupted writes."""


@dataclass(frozen=True, slots=True)
class _Findings:
    """What the gates read."""

    names: Sequence[str]
    """The files beside the records of writes."""
    loaded: LoadedBranch
    schema_hash: str
    drifted: Sequence[TableEntry] | OmnigraphError
    """The tables with newer versions; an error counts only if the base has not moved."""


def _look(graph: OpenGraph, plan: CommitPlan, beside: Callable[[], None] | None) -> _Findings:
    with Together(graph.root.layout.root) as calls:
        names = calls.add(partial(sidecar.list_names, graph.root))
        loaded = calls.add(graph.coordinator(plan.branch).load)
        schema_hash = calls.add(partial(read_schema_hash, graph.root))
        drifted = calls.add(partial(_find_drift, graph, plan))
        if beside is not None:
            calls.add(beside)
    return _Findings(names.answer, loaded.answer, schema_hash.answer, drifted.answer)


def _find_drift(graph: OpenGraph, plan: CommitPlan) -> Sequence[TableEntry] | OmnigraphError:
    entries = [
        plan.base.entries[key]
        for key, effect in plan.effects.items()
        if not isinstance(effect, AdoptVersion | CreateTable)
    ]
    try:
        return find_drift(graph, [entry for entry in entries if not is_first_touch(plan, entry)])
    except OmnigraphError as error:
        return error


def rebase_plan(plan: CommitPlan, loaded: LoadedBranch) -> CommitPlan:
    """Return the plan on a newer state of its branch, in which nothing that it depends on has moved.

    Preparing it again would give the same plan: its rows, checks and staged files follow from the tables
    that it read and writes, and these are at the same versions.
    """
    base = make_base(loaded, plan.base.schema_hash)
    return plan if base == plan.base else replace(plan, base=base)


def moved_by_recovery(plan: CommitPlan, actual: str) -> BaseMoved:
    changed = ReadSetChanged(f"graph_head:{plan.branch}", expected=plan.base.head, actual=actual)
    return BaseMoved(changed, by_rival=False)


def _check_base(graph: OpenGraph, plan: CommitPlan, loaded: LoadedBranch, schema_hash: str) -> None:
    moved = find_conflict(plan, loaded)
    if moved is not None:
        raise BaseMoved(moved, by_rival=not _holds_same_rows(graph, plan, loaded))
    if schema_hash != plan.base.schema_hash:
        raise BaseMoved(ReadSetChanged("schema", expected=plan.base.schema_hash, actual=schema_hash))


def find_conflict(plan: CommitPlan, loaded: LoadedBranch) -> TableVersionConflict | ReadSetChanged | None:
    """Return the first dependency of a plan that moved: a table it writes, the branch, a table it read."""
    return _moved_table(plan, loaded) or _moved_branch(plan, loaded) or _moved_read(plan, loaded)


def _moved_table(plan: CommitPlan, loaded: LoadedBranch) -> TableVersionConflict | None:
    entries = loaded.state.entries()
    for key in plan.effects:
        expected, actual = plan.base.entries.get(key), entries.get(key)
        if expected != actual:
            return TableVersionConflict(
                key,
                expected=expected.version if expected else None,
                actual=actual.version if actual else None,
            )
    return None


def _moved_branch(plan: CommitPlan, loaded: LoadedBranch) -> ReadSetChanged | None:
    """Another incarnation of the branch, or, for a plan that depends on all of it, another head."""
    head = loaded.state.head.id if loaded.state.head else None
    if loaded.identity == plan.base.identity and (plan.reads is not None or head == plan.base.head):
        return None
    return ReadSetChanged(f"graph_head:{plan.branch}", expected=plan.base.head, actual=head)


def _moved_read(plan: CommitPlan, loaded: LoadedBranch) -> ReadSetChanged | None:
    entries = loaded.state.entries()
    for key in sorted(plan.reads or ()):
        expected, actual = plan.base.entries.get(key), entries.get(key)
        if expected != actual:
            return ReadSetChanged(key, expected=_version_of(expected), actual=_version_of(actual))
    return None


def _version_of(entry: TableEntry | None) -> str | None:
    return None if entry is None else f"version {entry.version}"


def _holds_same_rows(graph: OpenGraph, plan: CommitPlan, loaded: LoadedBranch) -> bool:
    """Whether every table that a plan depends on holds the same rows, at most stored differently."""
    base, state, entries = plan.base, loaded.state, loaded.state.entries()
    if loaded.identity != base.identity:
        return False
    if state.head is not None and state.head.id == base.head:
        return True  # no row changes without a commit
    keys = base.entries.keys() | entries.keys() if plan.reads is None else plan.reads | plan.effects.keys()
    changed = [key for key in keys if entries.get(key) != base.entries.get(key)]
    return all(_is_only_maintenance(graph, base.entries.get(key), entries.get(key)) for key in changed)


def _is_only_maintenance(graph: OpenGraph, before: TableEntry | None, after: TableEntry | None) -> bool:
    """Whether nothing but maintenance lies between two versions of a table."""
    if before is None or after is None:
        return False
    if (before.owner, before.row_count) != (after.owner, after.row_count) or before.version > after.version:
        return False
    root = graph.root
    table = root.tables.open(root.layout.table(after.path), after.version, branch=after.owner)
    between = range(before.version + 1, after.version + 1)
    try:
        return all(read_transaction(table, version).is_maintenance for version in between)
    except StorageFailure as failure:
        if failure.kind != TableFailureKind.NOT_FOUND:
            raise
        return False  # cleaned up meanwhile: unknown


def _check_heads(
    graph: OpenGraph, plan: CommitPlan, held: HeldLocks, drifted: Sequence[TableEntry] | OmnigraphError
) -> None:
    """Require every table to be at its published version; resolves drift that recovery or upkeep left."""
    if isinstance(drifted, OmnigraphError):
        raise drifted
    try:
        resolved = resolve_drift(graph, plan.branch, held, drifted)
    except Conflict:
        # Under a lost lease another writer may have committed: then the base moved, and nothing is wrong.
        _check_base(graph, plan, graph.coordinator(plan.branch).load(), read_schema_hash(graph.root))
        raise
    if resolved:
        raise moved_by_recovery(plan, "drift resolved")
