"""The history of one entity: the commits of a branch that changed it, and what each changed.

The manifest says in which of its versions each version of a table was published. So commits that left the
table of the entity as it was are never looked at, and of the others one row each is read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes import DEFAULT_ENTRIES
from omnigraph.engine.changes.change import Change, ChangeOperation, EntityImage
from omnigraph.engine.changes.diff import build_images
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.graph.coordinator import LoadedBranch, read_published_versions
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.lineage import Commit, walk_first_parents
from omnigraph.engine.graph.manifest import TableEntry, TableVersion
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.predicate import one_of
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values import Json, shorten_legibly


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """A property of an entity, before and after a commit; None where it had no value."""

    name: str
    before: Json
    after: Json


@dataclass(frozen=True, slots=True)
class EntityChange:
    """What a commit did to an entity."""

    commit: Commit
    change: Change

    @property
    def properties(self) -> tuple[PropertyChange, ...]:
        """What it changed; of an insert and a delete, all values. An edge has its ends as `src` and `dst`."""
        before, after = _list_values(self.change.before), _list_values(self.change.after)
        names = self.change.changed or tuple(after or before)
        found = (PropertyChange(name, before.get(name), after.get(name)) for name in names)
        return tuple(one for one in found if one.before is not None or one.after is not None)


@dataclass(frozen=True, slots=True)
class EntityHistory:
    """The commits that changed an entity, newest first."""

    changes: tuple[EntityChange, ...]
    reclaimed: bool = False
    """Whether older commits cannot be compared, because a cleanup removed versions of the table."""

    def __iter__(self) -> Iterator[EntityChange]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __getitem__(self, place: int) -> EntityChange:
        return self.changes[place]


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """Whose history is read, and how much of it."""

    branch: str
    type_name: str
    """The name of a type, or `node:Name` and `edge:Name` where both kinds have one."""
    entity_id: str
    limit: int | None = DEFAULT_ENTRIES


def read_entity_history(graph: OpenGraph, request: HistoryRequest) -> EntityHistory:
    """Return the commits of a branch that changed an entity; a merge counts as one commit."""
    loaded = graph.load(request.branch)
    key = _find_key(loaded, request.type_name)
    entity = _EntityVersions(graph, request.branch, loaded, key, request.entity_id)
    found: list[EntityChange] = []
    try:
        for change in islice(entity.changes(), request.limit):
            found.append(change)  # noqa: PERF402 - those before a failure count
    except HistoricalVersionReclaimed:
        return EntityHistory(tuple(found), reclaimed=True)
    return EntityHistory(tuple(found))


def _find_key(loaded: LoadedBranch, type_name: str) -> str:
    known = list(loaded.state.entries())
    found = [key for key in known if type_name in (key, split_key(key)[1])]
    if len(found) == 1:
        return found[0]
    if found:
        raise BadRequest(
            f"'{type_name}' is a node type and an edge type", remedy=f"name {' or '.join(found)}"
        )
    names = ", ".join(sorted({split_key(key)[1] for key in known}))
    raise BadRequest(f"there is no type '{shorten_legibly(type_name)}'", remedy=f"there are: {names}")


class _EntityVersions:
    """One entity in the versions of its table that a branch published."""

    def __init__(self, graph: OpenGraph, branch: str, loaded: LoadedBranch, key: str, entity_id: str) -> None:
        self._graph = graph
        self._branch = branch
        self._loaded = loaded
        self._key = key
        self._id = entity_id
        head = loaded.state.head
        self._chain = list(walk_first_parents(loaded.state.commits, head.id if head else None))[::-1]
        """The commits of the branch, oldest first."""
        self._catalogs: dict[str | None, Catalog] = {}

    def changes(self) -> Iterator[EntityChange]:
        """Yield what commits did to the entity, newest first."""
        later: tuple[Commit, EntityImage | None] | None = None
        for commit, entry in self._published():
            image = self._read_image(commit, entry)
            if later is not None:
                yield from self._compare(later[0], image, later[1])
            later = commit, image
        if later is not None:
            yield from self._compare(later[0], None, later[1])

    def _compare(
        self, commit: Commit, before: EntityImage | None, after: EntityImage | None
    ) -> Iterator[EntityChange]:
        kind, name = split_key(self._key)
        was, now = _list_values(before), _list_values(after)
        changed = [one for one in {**now, **was} if was.get(one) != now.get(one)]
        if before is not None and after is not None and changed:
            update = Change(kind, name, self._id, ChangeOperation.UPDATE, before, after, tuple(changed))
            yield EntityChange(commit, update)
        elif (before is None) != (after is None):
            op = ChangeOperation.INSERT if before is None else ChangeOperation.DELETE
            yield EntityChange(commit, Change(kind, name, self._id, op, before, after))

    def _published(self) -> Iterator[tuple[Commit, TableEntry]]:
        """Yield the commits after which the table had another version than before, newest first."""
        published = read_published_versions(self._loaded.table, self._key)
        if published is None:
            yield from self._published_by_snapshots()
            return
        dropped = self._loaded.state.tombstones.get(self._key, -1)
        versions = [commit.version for commit in self._chain]
        # Of several versions that one commit shows, the newest counts.
        shown: dict[int, TableVersion] = {}
        for created, one in published:
            place = bisect_left(versions, created)
            if one.version > dropped and place < len(versions):
                shown[place] = one
        path = self._loaded.state.locations[self._key]
        for place in sorted(shown, reverse=True):
            one = shown[place]
            yield self._chain[place], TableEntry(self._key, path, one.version, one.owner, one.row_count)

    def _published_by_snapshots(self) -> Iterator[tuple[Commit, TableEntry]]:
        """The same for manifests of old releases, which do not record when their rows were written."""
        later: tuple[Commit, TableEntry] | None = None
        for commit in reversed(self._chain):
            entry = self._snapshot(commit).entries.get(self._key)
            if later is not None and later[1] != entry:
                yield later
            if entry is None:
                return
            later = commit, entry
        if later is not None:
            yield later

    def _snapshot(self, commit: Commit) -> Snapshot:
        return self._graph.snapshot(AtVersion(self._branch, commit.version))

    def _read_image(self, commit: Commit, entry: TableEntry) -> EntityImage | None:
        """Return the entity as a version of the table has it; None when it is not there."""
        at = Snapshot(self._branch, commit.version, commit, {self._key: entry}, self._loaded.identity)
        side = TableSide.of(self._graph, at, self._key, self._catalog_of(commit))
        if side is None or entry.row_count == 0:
            return None
        with side.explain_failures():
            rows = side.table.scan(
                [*side.system, *side.types], where=one_of(ID, [self._id]), blob_bytes=bool(side.blobs)
            )
        return next(build_images(side, rows), None)

    def _catalog_of(self, commit: Commit) -> Catalog:
        """Return the schema of a commit; one is read for all commits between two changes of the schema."""
        at = self._schema_commits.get(commit.id)
        if at not in self._catalogs:
            self._catalogs[at] = self._graph.catalog_at(self._snapshot(commit))
        return self._catalogs[at]

    @cached_property
    def _schema_commits(self) -> Mapping[str, str]:
        """For each commit the one that accepted its schema, as far as there is one on record."""
        places = self._graph.root.objects.list_dir(self._graph.root.layout.past_schemas)
        accepted = {at.name.removesuffix(".pg") for at in places}
        found: dict[str, str] = {}
        current: str | None = None
        for commit in self._chain:
            current = commit.id if commit.id in accepted else current
            if current is not None:
                found[commit.id] = current
        return found


def _list_values(image: EntityImage | None) -> dict[str, Any]:
    if image is None:
        return {}
    ends: dict[str, Any] = {} if image.source is None else {"src": image.source, "dst": image.target}
    return {**ends, **image.properties}
