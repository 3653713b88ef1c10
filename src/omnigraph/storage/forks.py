"""Forks of a table: the Lance branches that hold a graph branch's own versions of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping
from uuid import uuid4

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.base_paths import fork_uri
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Fence, ObjectStore
from omnigraph.storage.references import (
    Fork,
    Incarnation,
    Survey,
    damaged_reference_error,
    find_fork,
    list_fork_names,
    parse_reference,
    reference_location,
    summary_place,
    survey,
)
from omnigraph.storage.session import fork_session
from omnigraph.storage.tables import Table, Tables, relocate_if_moved, with_session

PARTS = frozenset({"_versions", "data", "_transactions", "_deletions", "_indices", "_refs"})
"""The folders of which a fork consists."""


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The files of one fork: whole folders, and single files."""

    folders: tuple[Location, ...]
    files: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenReference:
    """The reference of a fork that is complete but does not exist for readers."""

    location: Location
    name: str
    text: str


def fork_folder(location: Location, name: str) -> Location:
    """Return the folder of a fork; those of other forks may be inside."""
    return location / f"tree/{name}"


def list_with_ancestors(name: str) -> list[str]:
    """Return a name and its ancestors: to create or delete a branch or its forks, all of them are locked.

    The files of `a/b` are in the folder of `a`: no process may clean up there while `a/b` is being created.
    """
    parts = name.split("/")
    return ["/".join(parts[: end + 1]) for end in range(len(parts))]


def may_hold_parent_files(name: str) -> bool:
    """Whether the folder of a fork may also hold files of one above it, as that of `a/data` does."""
    return not PARTS.isdisjoint(name.split("/")[1:])


def list_own_files(objects: ObjectStore, location: Location, name: str, forks: Collection[str]) -> OwnFiles:
    """Return what only this fork can have written; `forks` are the names of all that have a reference."""
    at = fork_folder(location, name)
    below = [other.removeprefix(f"{name}/") for other in forks if other.startswith(f"{name}/")]
    if not below and not may_hold_parent_files(name):
        return OwnFiles((at,))
    parts = [_own_in(objects, at / part, _list_beneath(part, below)) for part in sorted(PARTS)]
    return OwnFiles(
        tuple(folder for own in parts for folder in own.folders),
        tuple(file for own in parts for file in own.files),
    )


def _list_beneath(part: str, below: Collection[str]) -> list[str] | None:
    """What is inside a part of the forks below: their first steps from there; None when there are none."""
    inside = [other for other in below if other == part or other.startswith(f"{part}/")]
    return [other[len(part) + 1 :].partition("/")[0] for other in inside] if inside else None


def _own_in(objects: ObjectStore, part: Location, others: Collection[str] | None) -> OwnFiles:
    """What is a fork's own in one of its parts, which may lead to others: these have no files right there."""
    if others is None:
        return OwnFiles((part,))
    mine = (one for one in objects.list_folders(part) if one not in PARTS and one not in others)
    return OwnFiles(tuple(part / one for one in sorted(mine)), tuple(objects.list_dir(part)))


def has_files(objects: ObjectStore, own: OwnFiles) -> bool:
    """Whether anything of it is there."""
    return bool(own.files) or any(objects.exists(folder) for folder in own.folders)


def remove_files(objects: ObjectStore, own: OwnFiles, fence: Fence | None) -> None:
    """Remove all of it; what is gone already is fine."""
    for file in own.files:
        objects.delete(file, fence)
    for folder in own.folders:
        objects.delete_prefix(folder, fence)


class Forks:
    """Creates, finds and deletes the forks of tables."""

    def __init__(self, tables: Tables, objects: ObjectStore, derived: Location | None = None) -> None:
        """Summaries of references are kept in `derived`, the folder for derived files of a graph."""
        self._tables = tables
        self._objects = objects
        self._derived = derived

    def create(self, source: Table, name: str) -> Table:
        """Create a fork that starts at exactly `source`; the table it comes from does not change.

        Fails with `AlreadyExists` when there is one of that name, `Residue` when an interrupted
        creation left its files behind.
        """
        uri = fork_uri(source.location, name)
        try:
            with source.access.call("create_fork", uri):
                # A handle can make one fork at a time, and threads share this one.
                native = copy.copy(source.native).create_branch(name, (source.branch, source.version))
                # What the source keeps of its own versions must not be taken for this one's.
                native = relocate_if_moved(
                    with_session(native, fork_session()), source.location, name, source.access
                )
        except StorageFailure as error:
            if error.kind in (TableFailureKind.EXISTS, TableFailureKind.NOT_FOUND) and self._is_residue(
                source.location, name
            ):
                reason = "an earlier creation of it was interrupted and left files behind"
                raise table_failure(TableFailureKind.RESIDUE, "create_fork", uri, reason) from error
            if error.kind == TableFailureKind.NOT_FOUND and self.find(source.location, name) is not None:
                # Lance looks for the version where one of that name ends before it.
                raise table_failure(
                    TableFailureKind.EXISTS, "create_fork", uri, "it exists already"
                ) from error
            raise
        made = Table(source.location, name, native.version, source.access, native)
        newest = made.latest_version()
        if newest != source.version:
            # Two creations of one name from different versions can mix their files.
            reason = f"it starts at version {newest} instead of {source.version}"
            raise table_failure(TableFailureKind.CONFLICT, "create_fork", uri, reason)
        return made.make_durable(is_first=True)

    def note(self, fork: Table, notes: Mapping[str, str]) -> None:
        """Write something about a fork into its reference, in the place of what was there."""
        assert fork.branch is not None
        with fork.access.call("note_fork", fork.uri):
            fork.native.branches.replace_metadata(fork.branch, dict(notes))
        if fork.access.checksums is not None:
            at = reference_location(fork.location, fork.branch).path
            fork.access.checksums.note(fork.location.path, [at])

    def hide(self, location: Location, name: str, fence: Fence | None = None) -> HiddenReference:
        """Remove the reference of a fork and return it: until `show`, there is no such fork for anyone."""
        at = reference_location(location, name)
        text = self._objects.read_text(at)
        self._tables.drop(name)
        self._objects.delete(at, fence)
        return HiddenReference(location, name, text)

    def show(self, hidden: HiddenReference, notes: Mapping[str, str]) -> Fork:
        """Write the reference of a hidden fork again, with notes, as a new incarnation.

        A process that saw the fork before it was hidden takes it for another one.
        """
        facts = json.loads(hidden.text)
        facts["identifier"]["version_mapping"][-1][1] = uuid4().hex
        facts["metadata"] = dict(notes)
        at = reference_location(hidden.location, hidden.name)
        wanted = parse_reference(hidden.name, text := json.dumps(facts, indent=2))
        self._objects.write_text_if_absent(at, text)
        made = self.find(hidden.location, hidden.name)
        if made is None or wanted is None or made.identity != wanted.identity:
            uri = fork_uri(hidden.location, hidden.name)
            raise table_failure(TableFailureKind.CONFLICT, "show_fork", uri, "another writer made it")
        checksums = self._tables.access.checksums
        if checksums is not None:
            checksums.note(hidden.location.path, [at.path])
        return made

    def _is_residue(self, location: Location, name: str) -> bool:
        """Whether there are files of a fork without the fork; over older ones Lance misses the source."""
        return self.find(location, name) is None and self._objects.exists(fork_folder(location, name))

    def find(self, location: Location, name: str) -> Fork | None:
        """The fork of this name, by one read of its reference; None when the store says there is none."""
        return find_fork(self._objects, location, name)

    def identity(self, location: Location, branch: str | None) -> Incarnation | None:
        """Return the incarnation of a branch: `()` for main, None when there is no such fork."""
        if branch is None:
            return ()
        found = self.find(location, branch)
        return None if found is None else found.identity

    def list(self, location: Location) -> dict[str, Fork]:
        """Every fork of a table by name; fails when a reference is broken."""
        found = self.survey(location)
        if found.broken:
            raise damaged_reference_error(location, min(found.broken))
        return dict(found.forks)

    def survey(self, location: Location, *, refresh: bool = False) -> Survey:
        """The same for callers that can do without some: the broken ones are listed by name.

        With `refresh` the summary of the references may be written: for callers that write to the graph.
        """
        summary = None if self._derived is None else summary_place(self._derived, location)
        return survey(self._objects, location, summary, refresh=refresh)

    def names(self, location: Location) -> frozenset[str]:
        """Every fork of a table, by its name alone."""
        return list_fork_names(self._objects, location)

    def delete(self, location: Location, name: str, fence: Fence | None = None) -> None:
        """Remove a fork and exactly its own files; fails with `NotFound`, or `InUse` when it has forks.

        A later fork of that name has files of the same names: the fence keeps those of another process.
        Lance's own removal is not used: it takes the whole folder of the first part of the name that no
        other fork has, and with it the files of a fork whose creation is under way. Below `main/` that
        folder is the table. Forks below its name, and one above it, keep theirs.
        """
        found = self.survey(location, refresh=True)
        uri = fork_uri(location, name)
        if name not in found.names:
            raise table_failure(TableFailureKind.NOT_FOUND, "delete_fork", uri, "there is no such fork")
        built_on = _list_built_on(found, name)
        if built_on:
            raise table_failure(
                TableFailureKind.IN_USE, "delete_fork", uri, f"'{built_on[0]}' was made from it"
            )
        unknown = found.broken - {name}
        if unknown:
            raise damaged_reference_error(location, min(unknown))
        self._tables.drop(name)
        self._objects.delete(reference_location(location, name), fence)
        self._remove_files(location, name, found.names, fence)

    def built_on(self, location: Location, name: str) -> tuple[str, ...]:
        """The forks that were made from one, directly or not."""
        return tuple(_list_built_on(self.survey(location), name))

    def remove_residue(self, location: Location, name: str, fence: Fence | None = None) -> None:
        """Remove the files of a fork that has no reference, and exactly those; refused while it exists."""
        if self.find(location, name) is not None:
            uri = fork_uri(location, name)
            raise table_failure(TableFailureKind.EXISTS, "remove_residue", uri, "the fork exists")
        self._remove_files(location, name, self.names(location), fence)

    def has_residue(self, location: Location, name: str, found: Collection[str]) -> bool:
        """Whether there are files that only a fork of this name can have left; `found` are all forks."""
        own = list_own_files(self._objects, location, name, found)
        return name not in found and has_files(self._objects, own)

    def _remove_files(
        self, location: Location, name: str, found: Collection[str], fence: Fence | None
    ) -> None:
        remove_files(self._objects, list_own_files(self._objects, location, name, found), fence)


def sort_innermost_first(found: Survey) -> list[str]:
    """The order in which they can go: those that stand on others, and those stored inside, come first."""
    # The incarnation of a fork begins with that of its parent.
    order = sorted(found.forks.values(), key=lambda fork: (-len(fork.identity), -len(fork.name), fork.name))
    # Where a broken one stands is unknown, and no other can go before it.
    return [*sorted(found.broken), *(fork.name for fork in order)]


def _list_built_on(found: Survey, name: str) -> list[str]:
    others = [fork for fork in found.forks.values() if fork.name != name]
    if name in found.broken:
        # Its incarnation is unknown, so any incarnation of the name counts.
        return sorted(fork.name for fork in others if fork.parent == name)
    if name not in found.forks:
        return []
    own = found.forks[name].identity
    return sorted(fork.name for fork in others if fork.identity[: len(own)] == own)
