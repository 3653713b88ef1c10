"""Forks of a table: the Lance branches that hold a graph branch's own versions of it."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

from omnigraph.errors import StorageFailure
from omnigraph.storage import fork_files
from omnigraph.storage.lance_errors import Trouble, failure
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.references import (
    Fork,
    Identity,
    Survey,
    described,
    find_fork,
    names_of,
    not_understood,
    reference,
    survey,
)
from omnigraph.storage.session import fork_session
from omnigraph.storage.tables import Table, Tables, apart, fork_uri


class Forks:
    """Makes, finds and removes the forks of tables."""

    def __init__(self, tables: Tables, objects: ObjectStore) -> None:
        self._tables = tables
        self._objects = objects

    def create(self, source: Table, name: str) -> Table:
        """A fork that starts at exactly `source`; the table it comes from does not move.

        Fails with `AlreadyExists` when there is one of that name, `Residue` when an interrupted
        creation left its files behind.
        """
        uri = fork_uri(source.location, name)
        try:
            with source.access.call("create_fork", uri):
                # A handle can make one fork at a time, and threads share this one.
                native = copy.copy(source.native).create_branch(name, (source.branch, source.version))
                # What the source keeps of its own versions must not be taken for this one's.
                native = apart(native, fork_session())
        except StorageFailure as error:
            if error.kind in (Trouble.EXISTS, Trouble.NOT_FOUND) and self._is_residue(source.location, name):
                reason = "an earlier creation of it was interrupted and left files behind"
                raise failure(Trouble.RESIDUE, "create_fork", uri, reason) from error
            if error.kind == Trouble.NOT_FOUND and self.find(source.location, name) is not None:
                # Lance looks for the version where one of that name ends before it.
                raise failure(Trouble.EXISTS, "create_fork", uri, "it exists already") from error
            raise
        made = Table(source.location, name, native.version, source.access, native)
        newest = made.latest_version()
        if newest != source.version:
            # Two creations of one name from different versions can mix their files.
            reason = f"it starts at version {newest} instead of {source.version}"
            raise failure(Trouble.CONFLICT, "create_fork", uri, reason)
        return made.settled()

    def note(self, fork: Table, notes: Mapping[str, str]) -> None:
        """Write something about a fork into its reference, in the place of what was there."""
        assert fork.branch is not None
        with fork.access.call("note_fork", fork.uri):
            fork.native.branches.replace_metadata(fork.branch, dict(notes))

    def _is_residue(self, location: Location, name: str) -> bool:
        """Whether there are files of a fork without the fork; over older ones Lance misses the source."""
        return self.find(location, name) is None and self._objects.exists(fork_files.home(location, name))

    def find(self, location: Location, name: str) -> Fork | None:
        """The fork of this name, by one read of its reference; None when the store says there is none."""
        return find_fork(self._objects, location, name)

    def identity(self, location: Location, branch: str | None) -> Identity | None:
        """Which life of a branch this is: `()` for main, None when there is no such fork."""
        if branch is None:
            return ()
        found = self.find(location, branch)
        return None if found is None else found.identity

    def list(self, location: Location) -> dict[str, Fork]:
        """Every fork of a table by name; reads one reference per fork, and fails when one is broken."""
        found = self.survey(location)
        if found.broken:
            raise not_understood(location, min(found.broken))
        return dict(found.forks)

    def survey(self, location: Location) -> Survey:
        """The same for whoever can do without some: what is broken is told by name."""
        root = self._tables.tip(location)
        try:
            listed = _listed(root)
        except StorageFailure as error:
            # Lance tells all or nothing, and not which reference it did not understand.
            if error.kind != Trouble.UNKNOWN:
                raise
            return survey(self._objects, location)
        return Survey({name: described(name, facts) for name, facts in sorted(listed.items())})

    def names(self, location: Location) -> frozenset[str]:
        """Every fork of a table, by its name alone."""
        return names_of(self._objects, location)

    def delete(self, location: Location, name: str) -> None:
        """Remove a fork and exactly its own files; fails with `NotFound`, or `InUse` when it has forks.

        Lance's own removal is not used: it takes the whole folder of the first part of the name that no
        other fork has, and with it the files of a fork whose creation is under way. Below `main/` that
        folder is the table. Forks below its name, and one above it, keep theirs.
        """
        found = self.survey(location)
        uri = fork_uri(location, name)
        if name not in found.names:
            raise failure(Trouble.NOT_FOUND, "delete_fork", uri, "there is no such fork")
        built_on = _built_on(found, name)
        if built_on:
            raise failure(Trouble.IN_USE, "delete_fork", uri, f"'{built_on[0]}' was made from it")
        unknown = found.broken - {name}
        if unknown:
            raise not_understood(location, min(unknown))
        self._tables.drop(name)
        self._objects.delete(reference(location, name))
        self._remove_files(location, name, found.names)

    def built_on(self, location: Location, name: str) -> tuple[str, ...]:
        """The forks that were made from one, directly or not."""
        return tuple(_built_on(self.survey(location), name))

    def remove_residue(self, location: Location, name: str) -> None:
        """Remove the files of a fork that has no reference, and exactly those; refused while it exists."""
        if self.find(location, name) is not None:
            uri = fork_uri(location, name)
            raise failure(Trouble.EXISTS, "remove_residue", uri, "the fork exists")
        self._remove_files(location, name, self.names(location))

    def has_residue(self, location: Location, name: str, found: Collection[str]) -> bool:
        """Whether there are files that only a fork of this name can have left; `found` are all forks."""
        own = fork_files.own_files(self._objects, location, name, found)
        return name not in found and fork_files.is_stored(self._objects, own)

    def _remove_files(self, location: Location, name: str, found: Collection[str]) -> None:
        fork_files.remove(self._objects, fork_files.own_files(self._objects, location, name, found))


def innermost_first(found: Survey) -> list[str]:
    """The order in which they can go: those that stand on others, and those stored inside, come first."""
    # The life of a fork begins with that of the one it was made from.
    order = sorted(found.forks.values(), key=lambda fork: (-len(fork.identity), -len(fork.name), fork.name))
    # Where a broken one stands is unknown, and no other can go before it.
    return [*sorted(found.broken), *(fork.name for fork in order)]


def _listed(root: Table, looks: int = 20) -> dict[str, Any]:
    while True:
        try:
            with root.access.call("list_forks", root.location.uri):
                found: dict[str, Any] = root.native.branches.list()
                return found
        except StorageFailure as vanished:
            # Of a fork that is deleted meanwhile the name is seen, and then no reference.
            looks -= 1
            if vanished.kind != Trouble.RECLAIMED or not looks:
                raise


def _built_on(found: Survey, name: str) -> list[str]:
    others = [fork for fork in found.forks.values() if fork.name != name]
    if name in found.broken:
        # Of its life nothing is known, so any life of its name counts.
        return sorted(fork.name for fork in others if fork.parent == name)
    if name not in found.forks:
        return []
    life = found.forks[name].identity
    return sorted(fork.name for fork in others if fork.identity[: len(life)] == life)
