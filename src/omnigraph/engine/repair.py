"""`repair`: tables that stand above what their branch publishes, although no write is on record for them.

It moves what is published, never rows. What is known to hold the published rows is published as it is;
anything else only if a person says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa

from omnigraph.engine.lineage import FORCED_REPAIR_ACTOR, REPAIR_ACTOR, Commit
from omnigraph.engine.manifest import MAIN, Entry, TableVersion
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.publish import Changes, Lineage, publish
from omnigraph.engine.recovery.drift import DriftKind, Judgement, judge_drift, restored_again
from omnigraph.engine.recovery.prospects import prospects
from omnigraph.engine.recovery.sweep import recover_branch
from omnigraph.engine.write.target import Target
from omnigraph.errors import BadRequest, BranchNotFound, OmnigraphError, RecoveryRequired
from omnigraph.storage.locks import Held
from omnigraph.storage.tables import Table


class Action(StrEnum):
    """What was done about a table."""

    NO_OP = "no_op"
    """It stands where its branch says, or a write on record explains why not."""
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Repaired:
    """A table that a branch has of its own."""

    key: str
    branch: str
    pinned: int
    """The version that the branch publishes."""
    head: int
    """Its newest version."""
    action: Action
    classification: DriftKind | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What was found and done."""

    tables: tuple[Repaired, ...]
    commits: tuple[Commit, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was refused."""
        return all(one.action is not Action.REFUSED for one in self.tables)


@dataclass(frozen=True, slots=True)
class _Drift:
    entry: Entry
    tip: Table
    judged: Judgement
    misfits: tuple[str, ...] = ()
    """What is wrong with its columns: nobody could read or write it under the schema."""

    @property
    def cause(self) -> str:
        wrong = (
            f"; its columns are not those of the schema: {', '.join(self.misfits)}" if self.misfits else ""
        )
        return f"{self.judged.cause}{wrong}"


def repair(graph: OpenGraph, *, confirm: bool = False, force: bool = False) -> RepairResult:
    """Look at every table of every branch, and with `confirm` publish what is known to be harmless.

    With `force` whatever stands there is published, as long as it has the columns of the schema. Its rows
    were never checked.
    """
    if force and not confirm:
        raise BadRequest("force without confirm does nothing", remedy="ask for both")
    tables: list[Repaired] = []
    commits: list[Commit] = []
    for branch in graph.branch_names():
        # It may be deleted while the others are looked at.
        with suppress(BranchNotFound):
            if confirm:
                found, made = _mended(graph, branch, force=force)
                commits += made
            else:
                found = _previewed(graph, branch)
            tables += found
    return RepairResult(tuple(tables), tuple(commits))


def _previewed(graph: OpenGraph, branch: str) -> list[Repaired]:
    recorded = {key for one in prospects(graph) if one.branch == branch for key in one.tables}
    return [_shown(branch, one, recorded) for one in _looked_at(graph, branch)]


def _shown(branch: str, found: _Drift | Repaired, recorded: set[str]) -> Repaired:
    if isinstance(found, Repaired):
        return found
    if found.entry.key in recorded:
        told = _told(branch, found, Action.NO_OP, "a write is on record; see `omnigraph recover`")
        return replace(told, classification=None)
    return _told(branch, found, Action.PREVIEW, found.cause)


def _mended(graph: OpenGraph, branch: str, *, force: bool) -> tuple[list[Repaired], list[Commit]]:
    with graph.root.locks.hold([branch]) as held:
        try:
            recover_branch(graph, branch, held)
        except RecoveryRequired as error:
            return [_blocked(branch, one, error) for one in _looked_at(graph, branch)], []
        found = list(_looked_at(graph, branch))
        done = [one if isinstance(one, Repaired) else _decided(branch, one, force=force) for one in found]
        acts = list(zip(found, done, strict=True))
        healed = [one for one, act in acts if isinstance(one, _Drift) and act.action is Action.HEALED]
        forced = [one for one, act in acts if isinstance(one, _Drift) and act.action is Action.FORCED]
        commits = [
            *_published(graph, branch, held, healed, REPAIR_ACTOR),
            *_published(graph, branch, held, forced, FORCED_REPAIR_ACTOR),
        ]
    return done, commits


def _looked_at(graph: OpenGraph, branch: str) -> Iterator[_Drift | Repaired]:
    """The tables of a branch's own: each one's drift, or what there is to tell if it has none."""
    owner, targets = None if branch == MAIN else branch, graph.schema().targets
    for entry in graph.load(branch).state.entries().values():
        if entry.owner != owner:
            continue
        head = 0
        try:
            tip = graph.root.tables.tip(graph.root.layout.table(entry.path), branch=owner)
            head = tip.version
            drift = None if head == entry.version else _drift(entry, tip, targets[entry.key])
        except OmnigraphError as error:
            unread = Repaired(entry.key, branch, entry.version, head, Action.REFUSED, DriftKind.UNVERIFIABLE)
            yield replace(unread, reason=error.message)
            continue
        yield drift or Repaired(entry.key, branch, entry.version, head, Action.NO_OP)


def _drift(entry: Entry, tip: Table, target: Target) -> _Drift:
    return _Drift(entry, tip, judge_drift(tip, entry.version), tuple(_misfits(tip.schema, target.schema)))


def _misfits(found: pa.Schema, wanted: pa.Schema) -> Iterator[str]:
    """How the columns of a table differ from what its type declares."""
    for field in wanted:
        if field.name not in found.names:
            yield f"`{field.name}` is missing"
        elif found.field(field.name).type != field.type:
            yield f"`{field.name}` is {found.field(field.name).type} and not {field.type}"
    yield from (f"`{name}` is not declared" for name in found.names if name not in wanted.names)


def _told(branch: str, drift: _Drift, action: Action, reason: str) -> Repaired:
    entry = drift.entry
    return Repaired(entry.key, branch, entry.version, drift.tip.version, action, drift.judged.kind, reason)


def _blocked(branch: str, found: _Drift | Repaired, error: RecoveryRequired) -> Repaired:
    return found if isinstance(found, Repaired) else _told(branch, found, Action.REFUSED, error.message)


def _decided(branch: str, drift: _Drift, *, force: bool) -> Repaired:
    cause = drift.cause
    if drift.judged.kind is DriftKind.VERIFIED_MAINTENANCE:
        return _told(branch, drift, Action.HEALED, cause)
    if not force:
        return _told(branch, drift, Action.REFUSED, cause)
    if drift.tip.version < drift.entry.version or drift.misfits:
        return _told(branch, drift, Action.REFUSED, f"{cause}; restore the table from a backup")
    return _told(branch, drift, Action.FORCED, cause)


def _published(
    graph: OpenGraph, branch: str, held: Held, drifts: Sequence[_Drift], actor: str
) -> Iterable[Commit]:
    """Publish where the tables stand, all in one commit."""
    if not drifts:
        return []
    versions = tuple(_version(drift, held) for drift in drifts)
    held.require()
    done = publish(
        graph.coordinator(branch),
        Changes(versions=versions),
        Lineage(graph.root.new_id(), actor=actor),
        expected={drift.entry.key: drift.entry.version for drift in drifts},
    )
    return [done.commit]


def _version(drift: _Drift, held: Held) -> TableVersion:
    entry, tip = drift.entry, drift.tip
    if drift.judged.is_late_recovery:
        return restored_again(entry, tip, drift.judged, held)
    if drift.judged.kind is DriftKind.VERIFIED_MAINTENANCE:
        return TableVersion(entry.key, tip.version, entry.owner, entry.row_count)
    return TableVersion(entry.key, tip.version, entry.owner, tip.count())
