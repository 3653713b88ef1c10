"""The gates of the door: what must hold, with the branch's lock in hand, before a write may begin."""

from __future__ import annotations

from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.manifest import MAIN, Entry
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Adopt, Base, CommitPlan, Create
from omnigraph.engine.recovery.drift import settle_drift
from omnigraph.engine.recovery.sweep import recover_branch
from omnigraph.engine.schema_files import schema_hash
from omnigraph.errors import (
    Conflict,
    OmnigraphError,
    ReadSetChanged,
    StorageFailure,
    TableVersionConflict,
)
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.locks import Held
from omnigraph.storage.transactions import authorship


class BaseMoved(Exception):
    """The base of a plan does not hold any more; nothing was done, and the write may be prepared anew.

    `by_rival` is false when no row is another than before: what a dead writer left had to be dealt with
    first, or tables were tidied up. Then even a write that read what it replaces begins anew.
    """

    def __init__(self, conflict: OmnigraphError, *, by_rival: bool = True) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict
        self.by_rival = by_rival


def is_first_touch(plan: CommitPlan, entry: Entry) -> bool:
    """Whether the branch has no fork of the table yet: it then inherits another branch's version."""
    return plan.branch not in (MAIN, entry.owner)


def pass_gates(graph: OpenGraph, plan: CommitPlan, held: Held) -> Loaded:
    """Recover what a dead writer left on the branch, then require the base of the plan.

    What comes back is the branch as it is: as long as the lock is held, nobody needs to ask again.
    """
    if recover_branch(graph, plan.branch, held):
        raise _moved_by_recovery(plan, "recovered")
    loaded = _check_base(graph, plan)
    _check_heads(graph, plan, held)
    return loaded


def _moved_by_recovery(plan: CommitPlan, actual: str) -> BaseMoved:
    changed = ReadSetChanged(f"graph_head:{plan.branch}", expected=plan.base.head, actual=actual)
    return BaseMoved(changed, by_rival=False)


def _check_base(graph: OpenGraph, plan: CommitPlan) -> Loaded:
    loaded = graph.coordinator(plan.branch).load()
    moved = _moved_table(plan, loaded) or _moved_head(plan, loaded)
    if moved is not None:
        raise BaseMoved(moved, by_rival=not _holds_same_rows(graph, plan.base, loaded))
    found = schema_hash(graph.root)
    if found != plan.base.schema_hash:
        raise BaseMoved(ReadSetChanged("schema", expected=plan.base.schema_hash, actual=found))
    return loaded


def _moved_table(plan: CommitPlan, loaded: Loaded) -> TableVersionConflict | None:
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


def _moved_head(plan: CommitPlan, loaded: Loaded) -> ReadSetChanged | None:
    head = loaded.state.head.id if loaded.state.head else None
    if (loaded.identity, head) == (plan.base.identity, plan.base.head):
        return None
    return ReadSetChanged(f"graph_head:{plan.branch}", expected=plan.base.head, actual=head)


def _holds_same_rows(graph: OpenGraph, base: Base, loaded: Loaded) -> bool:
    """Whether the branch still has the rows of a base, in every table, and only stores them otherwise."""
    state, entries = loaded.state, loaded.state.entries()
    if loaded.identity != base.identity or entries.keys() != base.entries.keys():
        return False
    if state.head is not None and state.head.id == base.head:
        return True  # no row changes without a commit
    changed = [key for key in entries if entries[key] != base.entries[key]]
    return all(_is_tidied(graph, base.entries[key], entries[key]) for key in changed)


def _is_tidied(graph: OpenGraph, before: Entry, after: Entry) -> bool:
    """Whether nothing but maintenance lies between two versions of a table."""
    if (before.owner, before.row_count) != (after.owner, after.row_count) or before.version > after.version:
        return False
    root = graph.root
    table = root.tables.open(root.layout.table(after.path), after.version, branch=after.owner)
    between = range(before.version + 1, after.version + 1)
    try:
        return all(authorship(table, version).is_maintenance for version in between)
    except StorageFailure as failure:
        if failure.kind != Trouble.NOT_FOUND:
            raise
        return False  # cleaned up meanwhile: nobody can tell any more


def _check_heads(graph: OpenGraph, plan: CommitPlan, held: Held) -> None:
    """A table must stand where the manifest says; what recovery left above that is settled first."""
    moved_or_dropped = [key for key, effect in plan.effects.items() if not isinstance(effect, Adopt | Create)]
    entries = [plan.base.entries[key] for key in moved_or_dropped]
    owned = [entry for entry in entries if not is_first_touch(plan, entry)]
    try:
        settled = settle_drift(graph, plan.branch, held, owned)
    except Conflict:
        # Under a lease somebody may have overtaken us: then the base moved, and nothing is wrong.
        _check_base(graph, plan)
        raise
    if settled:
        raise _moved_by_recovery(plan, "settled")
