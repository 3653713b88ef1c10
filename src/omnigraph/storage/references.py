"""The references of forks: small files that say which forks a table has, and which life each is in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from omnigraph.storage.lance_errors import Trouble, failure
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


def reference(location: Location, name: str) -> Location:
    """Where the reference of a fork is."""
    return Location(f"{location.uri}/_refs/branches/{quote(name, safe='')}.json")


def find_fork(objects: ObjectStore, location: Location, name: str) -> Fork | None:
    """The fork of this name, by one read of its reference; None when the store says there is none."""
    text = objects.read_text_if_exists(reference(location, name))
    if text is None:
        return None
    found = _parsed(name, text)
    if found is None:
        uri = reference(location, name).uri
        raise failure(Trouble.UNKNOWN, "read_fork", uri, "its reference cannot be understood")
    return found


def life_of(objects: ObjectStore, location: Location, name: str) -> Identity | None:
    """Which life a fork is in, for whoever can do without: None where there is none, or none that is told."""
    text = objects.read_text_if_exists(reference(location, name))
    found = None if text is None else _parsed(name, text)
    return None if found is None else found.identity


def _parsed(name: str, text: str) -> Fork | None:
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
