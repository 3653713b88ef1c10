"""Forks of a table: the Lance branches that hold a graph branch's own versions of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from omnigraph.errors import StorageFailure
from omnigraph.storage.lance_errors import Trouble, failure
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.tables import Identity, Table, Tables, fork_uri


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork as its reference records it."""

    name: str
    parent: str | None
    """The branch it was made from, None for main."""
    parent_version: int
    identity: Identity


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
                native = source.native.create_branch(name, (source.branch, source.version))
        except StorageFailure as error:
            if error.kind == Trouble.EXISTS and self.find(source.location, name) is None:
                reason = "an earlier creation of it was interrupted and left files behind"
                raise failure(Trouble.RESIDUE, "create_fork", uri, reason) from error
            raise
        made = Table(source.location, name, native.version, source.access, native)
        newest = made.latest_version()
        if newest != source.version:
            # Two creations of one name from different versions can mix their files.
            reason = f"it starts at version {newest} instead of {source.version}"
            raise failure(Trouble.CONFLICT, "create_fork", uri, reason)
        return made

    def find(self, location: Location, name: str) -> Fork | None:
        """The fork of this name, by one read of its reference; None when the store says there is none."""
        text = self._objects.read_text_if_exists(_reference(location, name))
        return None if text is None else _parsed(location, name, text)

    def identity(self, location: Location, branch: str | None) -> Identity | None:
        """Which life of a branch this is: `()` for main, None when there is no such fork."""
        if branch is None:
            return ()
        found = self.find(location, branch)
        return None if found is None else found.identity

    def list(self, location: Location) -> dict[str, Fork]:
        """Every fork of a table by name; reads one reference per fork."""
        root = self._tables.tip(location)
        with root.access.call("list_forks", location.uri):
            found = root.native.branches.list()
        return {name: _described(name, facts) for name, facts in sorted(found.items())}

    def delete(self, location: Location, name: str) -> None:
        """Remove a fork and its own files; fails with `NotFound`, or `InUse` when it has forks itself."""
        root = self._tables.tip(location)
        with root.access.call("delete_fork", fork_uri(location, name)):
            root.native.branches.delete(name)

    def remove_residue(self, location: Location, name: str) -> None:
        """Remove the files of a fork that has no reference; refused while it, or a fork below it, exists."""
        uri = fork_uri(location, name)
        if self.find(location, name) is not None:
            raise failure(Trouble.EXISTS, "remove_residue", uri, "the fork exists")
        below = [other for other in self.list(location) if other.startswith(f"{name}/")]
        if below:
            raise failure(Trouble.IN_USE, "remove_residue", uri, f"'{below[0]}' is stored below it")
        self._objects.delete_prefix(location / f"tree/{name}")


def _reference(location: Location, name: str) -> Location:
    return Location(f"{location.uri}/_refs/branches/{quote(name, safe='')}.json")


def _parsed(location: Location, name: str, text: str) -> Fork:
    try:
        facts: Any = json.loads(text)
        mapping = facts["identifier"]["version_mapping"]
        identity = tuple((int(version), str(mark)) for version, mark in mapping)
        return Fork(name, facts["parentBranch"], int(facts["parentVersion"]), identity)
    except (ValueError, KeyError, TypeError) as error:
        uri = _reference(location, name).uri
        raise failure(Trouble.UNKNOWN, "read_fork", uri, "its reference cannot be understood") from error


def _described(name: str, facts: Any) -> Fork:
    identity = tuple((int(version), str(mark)) for version, mark in facts["branch_identifier"])
    return Fork(name, facts["parent_branch"], int(facts["parent_version"]), identity)
