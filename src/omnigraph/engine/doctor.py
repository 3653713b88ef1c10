"""What is out of order in a graph, found by looking and without touching anything.

Others may write meanwhile. What they have under way looks like what a dead process left, so whatever could be
either is looked at once more: first their lock and their record are asked for, then what the branch shows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from omnigraph.engine.cleanup.collect import is_gone, old_versions
from omnigraph.engine.cleanup.dropped import DroppedTable, dropped_tables
from omnigraph.engine.cleanup.in_vain import is_settled, unshown_tables
from omnigraph.engine.cleanup.needed import Needed, needed_versions
from omnigraph.engine.cleanup.policy import Policy
from omnigraph.engine.cleanup.strays import Stray, half_made_branches, stored_tables, strays_of
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.manifest import MAIN, Entry
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery.drift import DriftKind, judge_drift
from omnigraph.engine.recovery.prospects import Prospect, prospects
from omnigraph.engine.recovery.sidecar import Sidecar
from omnigraph.engine.recovery.sweep import records as records_of
from omnigraph.errors import BranchNotFound, InternalError, StorageFailure
from omnigraph.storage.fork_files import with_those_above
from omnigraph.storage.indexes import IndexCoverage, coverage
from omnigraph.storage.references import Identity
from omnigraph.storage.tables import Table

ON_RECORD = "a write on record"
_LOOKS = 3
"""So often a table is looked at that moves on whenever it is; then it is alive."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A table that stands elsewhere than its branch says."""

    key: str
    branch: str
    pinned: int
    head: int
    cause: str
    """What made the versions in between: `ON_RECORD`, or one of `recovery.drift`."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A branch, or a table of one, that cannot be read at all."""

    branch: str
    key: str | None
    """None when it is the branch itself."""
    reason: str


@dataclass(frozen=True, slots=True)
class LastWriter:
    """Who took the lock of a branch last; it may be held still or be free."""

    branch: str
    owner: str
    operation_id: str | None


@dataclass(frozen=True, slots=True)
class Indexed:
    """An index of a table that a branch has of its own, and how far it reaches."""

    key: str
    branch: str
    index: IndexCoverage


@dataclass(frozen=True, slots=True)
class Past:
    """The versions of a table that are stored, and those that only the past needs."""

    key: str
    branch: str
    versions: int
    past: int
    """What a cleanup could remove that keeps one commit of each branch."""


@dataclass(frozen=True, slots=True)
class Vain:
    """A table that no branch ever showed: a change of the schema made it and failed, or is under way."""

    path: str
    removable: bool
    """Whether a cleanup removes it: nothing was written there for long."""


@dataclass(frozen=True, slots=True)
class Derived:
    """What reads keep to be fast; it may be deleted at any time."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Health:
    """Everything that was found."""

    records: tuple[Prospect, ...]
    """Writes on record: under way at this moment, or interrupted."""
    unread: tuple[Unread, ...]
    drift: tuple[Drift, ...]
    forks: tuple[Stray, ...]
    """Forks that no branch shows, and files of such; those of a branch itself are told as `manifest`."""
    writers: tuple[LastWriter, ...]
    indexes: tuple[Indexed, ...]
    history: tuple[Past, ...]
    dropped: tuple[DroppedTable, ...]
    """Tables of dropped types that only the past needs."""
    in_vain: tuple[Vain, ...]
    derived: Derived

    @property
    def ok(self) -> bool:
        """Whether there is nothing to mend; an index that lags is none, nor a write that is under way."""
        return not (self.interrupted or self.unread or self.drift or self.forks)

    @property
    def interrupted(self) -> tuple[Prospect, ...]:
        """The records of branches that nobody is writing to."""
        return tuple(one for one in self.records if not one.busy)


def examine(graph: OpenGraph) -> Health:
    """Look at every branch and table of a graph; what cannot be read is told, and hides nothing else.

    It begins anew when a branch is deleted meanwhile.
    """
    while True:
        records = tuple(prospects(graph))
        branches, unread = _branches(graph)
        try:
            return _examined(graph, records, branches, unread)
        except StorageFailure:
            if not any(is_gone(graph, branch) for branch in branches):
                raise


def _examined(
    graph: OpenGraph, records: tuple[Prospect, ...], branches: Mapping[str, Loaded], unread: Sequence[Unread]
) -> Health:
    tables, missing = _tables(graph, branches)
    untold = {one.branch for one in unread}
    forks, unlisted = _stray_forks(graph, branches, untold)
    told = {one.key for one in missing}
    needed = needed_versions(branches, Policy(1, None, 0.0), graph.root.clock())
    return Health(
        records,
        (*unread, *missing, *(one for one in unlisted if one.key not in told)),
        tuple(_drift(graph, tables, records)),
        tuple(forks),
        tuple(_writers(graph, branches)),
        tuple(_indexes(tables)),
        tuple(_history(graph, branches, needed)),
        tuple(_dropped(graph, branches, needed)),
        # What a branch shows that cannot be read is not known.
        () if untold else tuple(_in_vain(graph, branches)),
        _derived(graph),
    )


def _branches(graph: OpenGraph) -> tuple[dict[str, Loaded], list[Unread]]:
    branches, unread = {}, []
    for branch in graph.branch_names():
        # It may be deleted while the others are looked at.
        with suppress(BranchNotFound):
            try:
                branches[branch] = graph.load(branch)
            except (InternalError, StorageFailure) as error:
                unread.append(Unread(branch, None, error.message))
    return branches, unread


@dataclass(frozen=True, slots=True)
class _Standing:
    """A table that a branch has of its own: as it publishes it, and its newest version."""

    branch: str
    life: Identity
    entry: Entry
    shown: Table | None
    """None when the published version is gone."""
    tip: Table


def _tables(graph: OpenGraph, branches: Mapping[str, Loaded]) -> tuple[list[_Standing], list[Unread]]:
    """The branches' own tables; what a branch inherits is its source's business."""
    found, unread = [], []
    for branch, loaded in branches.items():
        own = [entry for entry in loaded.state.entries().values() if _is_own(entry, branch)]
        for entry in own:
            try:
                found.append(_standing(graph, branch, loaded.identity, entry))
            except StorageFailure as failure:
                unread.append(Unread(branch, entry.key, failure.message))
    return found, unread


def _is_own(entry: Entry, branch: str) -> bool:
    return (entry.owner or MAIN) == branch


def _standing(graph: OpenGraph, branch: str, life: Identity, entry: Entry) -> _Standing:
    place, tables = graph.root.layout.table(entry.path), graph.root.tables
    tip = tables.tip(place, branch=entry.owner)
    behind = tip.version < entry.version
    shown = None if behind else tables.open(place, entry.version, branch=entry.owner)
    return _Standing(branch, life, entry, shown, tip)


def _history(graph: OpenGraph, branches: Mapping[str, Loaded], needed: Needed) -> list[Past]:
    """Told by lists alone: how many bytes would go is only known to whoever reads every version."""
    try:
        olds = old_versions(graph, branches, needed)
    except StorageFailure:
        return []  # a table that cannot be read is told of
    return [Past(old.key, old.place.branch, old.stored, len(old.versions)) for old in olds]


def _dropped(graph: OpenGraph, branches: Mapping[str, Loaded], needed: Needed) -> list[DroppedTable]:
    try:
        return dropped_tables(graph, branches, needed) if MAIN in branches else []
    except StorageFailure:
        return []  # likewise


def _in_vain(graph: OpenGraph, branches: Mapping[str, Loaded]) -> Iterator[Vain]:
    for path in unshown_tables(graph, branches.values()):
        yield Vain(path, is_settled(graph, path))


def _derived(graph: OpenGraph) -> Derived:
    sizes = graph.root.objects.list_sizes(graph.root.layout.derived)
    return Derived(len(sizes), sum(sizes.values()))


def _drift(graph: OpenGraph, tables: Sequence[_Standing], records: Sequence[Prospect]) -> Iterator[Drift]:
    interrupted = {record.operation_id for record in records if not record.busy}
    for one in tables:
        found = _confirmed_drift(graph, one, interrupted)
        if found is not None:
            yield found


def _confirmed_drift(graph: OpenGraph, one: _Standing, interrupted: Collection[str]) -> Drift | None:
    """How a table stands elsewhere than its branch says, unless that comes of a write that is under way.

    A record is there before the first version that its write makes, and until the branch shows them all;
    upkeep has no record, and holds the lock as long. So, asked in this order and after the version was seen,
    no lock, no record and no change of what the branch shows mean that nobody is going to show it.
    """
    for _ in range(_LOOKS):
        if one.tip.version == one.entry.version:
            return None
        is_taken = graph.root.taken(one.branch) is not None
        writes = _writes_on_record(graph, one)
        now = _shown_now(graph, one)
        if now is None:
            return None
        if now == (one.life, one.entry):
            return _told_drift(one, writes, interrupted) if writes else _judged_drift(one, is_taken)
        one = _standing(graph, one.branch, *now)
    return None


def _writes_on_record(graph: OpenGraph, one: _Standing) -> set[str]:
    """The operations that are to change a table, in this life of its branch."""
    return {
        record.operation_id
        for record in records_of(graph)
        if isinstance(record, Sidecar)
        and record.graph_branch == one.branch
        and (record.authority is None or record.authority.branch_identifier == one.life)
        and any(pin.table_key == one.entry.key for pin in record.tables)
    }


def _shown_now(graph: OpenGraph, one: _Standing) -> tuple[Identity, Entry] | None:
    """What a branch shows of a table by now; None when that is no table of its own any more."""
    try:
        loaded = graph.load(one.branch)
    except BranchNotFound:
        return None
    entry = loaded.state.entries().get(one.entry.key)
    return (loaded.identity, entry) if entry is not None and _is_own(entry, one.branch) else None


def _told_drift(one: _Standing, writes: Collection[str], interrupted: Collection[str]) -> Drift | None:
    """The drift of a table with writes on record; of one that goes on, or began meanwhile, there is none."""
    return _drift_by(ON_RECORD, one) if any(write in interrupted for write in writes) else None


def _judged_drift(one: _Standing, is_taken: bool) -> Drift | None:
    judged = judge_drift(one.tip, one.entry.version)
    # Who has the lock may be just at it, and otherwise the next one settles it.
    under_way = is_taken and judged.kind is DriftKind.VERIFIED_MAINTENANCE
    return None if under_way else _drift_by(judged.cause, one)


def _drift_by(cause: str, one: _Standing) -> Drift:
    return Drift(one.entry.key, one.branch, one.entry.version, one.tip.version, cause)


def _stray_forks(
    graph: OpenGraph, branches: Mapping[str, Loaded], untold: Collection[str]
) -> tuple[list[Stray], list[Unread]]:
    """What is left over of forks, also of dropped types; and the tables that keep it to themselves.

    Of branches that cannot be read nobody knows what they show.
    """
    found, unread = [], []
    for key, at in stored_tables(graph.root, branches).items():
        try:
            strays = list(strays_of(graph.root, branches, key, at))
        except StorageFailure as failure:
            unread.append(Unread(MAIN, key, failure.message))
        else:
            found += [stray for stray in strays if stray.branch not in untold]
    return _left_over(graph, [*found, *half_made_branches(graph.root)]), unread


def _left_over(graph: OpenGraph, seen: Sequence[Stray]) -> list[Stray]:
    """What nobody is at work on: a fork is made, and made known or removed, under the lock of its branch."""
    free = [stray for stray in seen if not _is_taken(graph, stray.branch)]
    if not free:
        return []
    branches, _ = _branches(graph)
    places = stored_tables(graph.root, branches)
    keys = {stray.key for stray in free} & places.keys()
    again = [stray for key in keys for stray in strays_of(graph.root, branches, key, places[key])]
    still = {*again, *half_made_branches(graph.root)}
    return [stray for stray in free if stray in still]


def _is_taken(graph: OpenGraph, branch: str) -> bool:
    return any(graph.root.taken(name) for name in with_those_above(branch))


def _writers(graph: OpenGraph, branches: Iterable[str]) -> list[LastWriter]:
    holders = ((branch, graph.root.locks.last_holder(branch)) for branch in branches)
    return [
        LastWriter(branch, str(holder.owner), holder.operation_id)
        for branch, holder in holders
        if holder is not None
    ]


def _indexes(tables: Sequence[_Standing]) -> Iterator[Indexed]:
    for one in tables:
        if one.shown is not None:
            yield from (Indexed(one.entry.key, one.branch, index) for index in coverage(one.shown).values())
