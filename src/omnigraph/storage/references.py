"""The references of forks: small files that say which forks a table has, and which life each is in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from omnigraph.errors import StorageFailure
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore

Identity = tuple[tuple[int, str], ...]
"""Which life of a fork this is: a name deleted and created again has another one. Main has `()`."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork as its reference records it."""

    name: str
    parent: str | None
    """The branch it was made from, None for main."""
    parent_version: int
    identity: Identity
    notes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What its maker wrote about it."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What the references of a table say, also where one of them cannot be understood."""

    forks: Mapping[str, Fork]
    broken: frozenset[str] = frozenset()
    """The forks of which nobody knows where they began."""

    @property
    def names(self) -> frozenset[str]:
        """All forks that there are."""
        return self.broken.union(self.forks)


_FOLDER = "_refs/branches"
_ENDING = ".json"


def reference(location: Location, name: str) -> Location:
    """Where the reference of a fork is."""
    return Location(f"{location.uri}/{_FOLDER}/{quote(name, safe='')}{_ENDING}")


def names_of(objects: ObjectStore, location: Location) -> frozenset[str]:
    """The forks of a table by name, without a look into their references."""
    stored = (at.name for at in objects.list_dir(location / _FOLDER))
    return frozenset(unquote(name.removesuffix(_ENDING)) for name in stored if name.endswith(_ENDING))


def survey(objects: ObjectStore, location: Location) -> Survey:
    """Every fork of a table, by one read for each: a broken reference keeps none of the others to itself."""
    found: dict[str, Fork] = {}
    broken = set()
    for name in sorted(names_of(objects, location)):
        text = objects.read_bytes_if_exists(reference(location, name))
        fork = None if text is None else _parsed(name, text)
        if fork is not None:
            found[name] = fork
        elif text is not None:  # otherwise it was deleted since it was listed
            broken.add(name)
    return Survey(found, frozenset(broken))


def not_understood(location: Location, name: str) -> StorageFailure:
    """The error for a fork whose reference is damaged."""
    at = reference(location, name)
    return StorageFailure(
        f"the reference of branch '{name}' cannot be understood: '{at.uri}'",
        kind=Trouble.UNKNOWN,
        uri=at.uri,
        remedy=f"delete branch '{name}', or restore that file from a backup",
    )


def find_fork(objects: ObjectStore, location: Location, name: str) -> Fork | None:
    """The fork of this name, by one read of its reference; None when the store says there is none."""
    text = objects.read_text_if_exists(reference(location, name))
    if text is None:
        return None
    found = _parsed(name, text)
    if found is None:
        raise not_understood(location, name)
    return found


def life_of(objects: ObjectStore, location: Location, name: str) -> Identity | None:
    """Which life a fork is in, for whoever can do without: None where there is none, or none that is told."""
    text = objects.read_text_if_exists(reference(location, name))
    found = None if text is None else _parsed(name, text)
    return None if found is None else found.identity


def _parsed(name: str, text: str | bytes) -> Fork | None:
    try:
        facts: Any = json.loads(text)
        mapping = facts["identifier"]["version_mapping"]
        identity = tuple((int(version), str(mark)) for version, mark in mapping)
        notes = {str(key): str(value) for key, value in (facts.get("metadata") or {}).items()}
        return Fork(name, facts["parentBranch"], int(facts["parentVersion"]), identity, notes)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def described(name: str, facts: Any) -> Fork:
    """A fork as Lance lists it."""
    identity = tuple((int(version), str(mark)) for version, mark in facts["branch_identifier"])
    notes = dict(facts.get("metadata") or {})
    return Fork(name, facts["parent_branch"], int(facts["parent_version"]), identity, notes)
