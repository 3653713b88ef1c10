"""What is out of order in a graph, found by looking and without touching anything."""

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
from omnigraph.engine.recovery.drift import judge_drift
from omnigraph.engine.recovery.prospects import Prospect, prospects
from omnigraph.errors import BranchNotFound, InternalError, StorageFailure
from omnigraph.storage.indexes import IndexCoverage, coverage
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class Drift:
    """A table that stands elsewhere than its branch says."""

    key: str
    branch: str
    pinned: int
    head: int
    cause: str
    """What made the versions in between."""


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
        """Whether there is nothing to mend; an index that lags is none."""
        return not (self.records or self.unread or self.drift or self.forks)


def examine(graph: OpenGraph) -> Health:
    """Look at every branch and table of a graph; what cannot be read is told, and hides nothing else.

    It begins anew when a branch is deleted meanwhile.
    """
    while True:
        # Before the tables: a write that ends in between must not look like one past the door.
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
        tuple(_drift(tables, records)),
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
    entry: Entry
    shown: Table | None
    """None when the published version is gone."""
    tip: Table


def _tables(graph: OpenGraph, branches: Mapping[str, Loaded]) -> tuple[list[_Standing], list[Unread]]:
    """The branches' own tables; what a branch inherits is its source's business."""
    found, unread = [], []
    for branch, loaded in branches.items():
        own = [entry for entry in loaded.state.entries().values() if (entry.owner or MAIN) == branch]
        for entry in own:
            try:
                found.append(_standing(graph, branch, entry))
            except StorageFailure as failure:
                unread.append(Unread(branch, entry.key, failure.message))
    return found, unread


def _standing(graph: OpenGraph, branch: str, entry: Entry) -> _Standing:
    place, tables = graph.root.layout.table(entry.path), graph.root.tables
    tip = tables.tip(place, branch=entry.owner)
    behind = tip.version < entry.version
    shown = None if behind else tables.open(place, entry.version, branch=entry.owner)
    return _Standing(branch, entry, shown, tip)


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


def _drift(tables: Sequence[_Standing], records: Sequence[Prospect]) -> Iterator[Drift]:
    recorded = {(record.branch, key) for record in records for key in record.tables}
    for one in tables:
        pinned, head = one.entry.version, one.tip.version
        if head != pinned:
            known = (one.branch, one.entry.key) in recorded
            cause = "a write on record" if known else judge_drift(one.tip, pinned).cause
            yield Drift(one.entry.key, one.branch, pinned, head, cause)


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
    return [*found, *half_made_branches(graph.root)], unread


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
