"""The references of forks: small files that record which forks a table has, and their incarnations."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore

FORMAT = 1
SUFFIX = ".forks"

_log = logging.getLogger(__name__)


class TaggedReference(NamedTuple):
    """The content of a reference, and the ETag of that content."""

    tag: str
    body: bytes


class _Summary(msgspec.Struct, frozen=True):
    format: int
    references: dict[str, TaggedReference]


_decoder = msgspec.msgpack.Decoder(_Summary)


def summary_place(derived: Location, table: Location) -> Location:
    """Return where the summary of a table is, given the folder for derived files of its graph."""
    root = derived.uri.rpartition("/")[0]
    return derived / f"{table.uri.removeprefix(f'{root}/').replace('/', '-')}{SUFFIX}"


def read_summary(objects: ObjectStore, at: Location) -> Mapping[str, TaggedReference]:
    """Return the references on file by the name of the fork; nothing when the file is missing or damaged."""
    try:
        stored = objects.read_bytes_if_exists(at)
        # The checksum is a part of the compressed form.
        found = None if stored is None else _decoder.decode(zlib.decompress(stored))
    except (StorageFailure, zlib.error, msgspec.MsgspecError) as error:
        _log.info("every reference is read: '%s' cannot be used: %s", at.uri, error)
        return {}
    return found.references if found is not None and found.format == FORMAT else {}


def write_summary(objects: ObjectStore, at: Location, references: Mapping[str, TaggedReference]) -> None:
    """Replace the summary of a table; a store that refuses fails no operation."""
    body = msgspec.msgpack.encode(_Summary(FORMAT, dict(references)))
    try:
        objects.write_bytes(at, zlib.compress(body))
    except StorageFailure as failure:
        _log.info("the next process reads every reference: %s", failure)


Incarnation = tuple[tuple[int, str], ...]
"""Identifies one incarnation of a fork: a name deleted and created again gets another one. Main has `()`."""


@dataclass(frozen=True, slots=True)
class Fork:
    """A fork as its reference records it."""

    name: str
    parent: str | None
    """The branch it was made from, None for main."""
    parent_version: int
    identity: Incarnation
    notes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What its maker wrote about it."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The forks of a table, including those whose reference cannot be parsed."""

    forks: Mapping[str, Fork]
    broken: frozenset[str] = frozenset()
    """The forks whose reference is damaged, so that their origin is unknown."""

    @property
    def names(self) -> frozenset[str]:
        """The names of all forks."""
        return self.broken.union(self.forks)


FEW = 4
"""Up to this many references are read one by one: a summary would save nothing."""

_FOLDER = "_refs/branches"
_ENDING = ".json"
_READS_AT_ONCE = 8


def reference_location(location: Location, name: str) -> Location:
    """Return where the reference of a fork is."""
    return Location(f"{location.uri}/{_FOLDER}/{quote(name, safe='')}{_ENDING}")


def is_reference(path: str) -> bool:
    """Whether a path below the root is that of a fork's reference."""
    return path.rpartition("/")[0].endswith(f"/{_FOLDER}") and path.endswith(_ENDING)


def list_fork_names(objects: ObjectStore, location: Location) -> frozenset[str]:
    """Return the names of a table's forks without reading their references."""
    stored = (at.name for at in objects.list_dir(location / _FOLDER))
    return frozenset(unquote(name.removesuffix(_ENDING)) for name in stored if name.endswith(_ENDING))


def survey(
    objects: ObjectStore, location: Location, summary: Location | None = None, *, refresh: bool = False
) -> Survey:
    """Return every fork of a table; a reference that cannot be parsed does not hide the others.

    References with the ETag that `summary` has on file are not read. With `refresh`, for callers that write
    to the graph, the summary is replaced once it lacks more than a few.
    """
    listed = {
        unquote(at.name.removesuffix(_ENDING)): (at, tag)
        for at, tag in objects.list_tags(location / _FOLDER).items()
        if at.name.endswith(_ENDING)
    }
    if len(listed) <= FEW or any(tag is None for _, tag in listed.values()):
        summary = None  # a folder lists no tags: to read a file there costs little
    on_file = {} if summary is None else read_summary(objects, summary)
    known = {name: one for name, one in on_file.items() if name in listed and listed[name][1] == one.tag}
    changed = {name: at for name, (at, _) in listed.items() if name not in known}
    fresh = _read_all(objects, changed, at_once=1 if location.is_local else _READS_AT_ONCE)
    current = {**known, **fresh}
    parsed = {name: parse_reference(name, current[name].body) for name in sorted(current)}
    forks = {name: fork for name, fork in parsed.items() if fork is not None}
    if refresh and summary is not None and len(fresh) > FEW:
        write_summary(objects, summary, {name: current[name] for name in forks})
    return Survey(forks, frozenset(parsed.keys() - forks.keys()))


def _read_all(
    objects: ObjectStore, places: Mapping[str, Location], at_once: int
) -> dict[str, TaggedReference]:
    """Read references by name, without those that were deleted since they were listed."""
    if at_once == 1 or len(places) < 2:
        found = [objects.read_bytes_versioned(at) for at in places.values()]
    else:
        with ThreadPoolExecutor(min(at_once, len(places))) as pool:
            found = list(pool.map(objects.read_bytes_versioned, places.values()))
    return {
        name: TaggedReference(stored.token, stored.body)
        for name, stored in zip(places, found, strict=True)
        if stored is not None
    }


def damaged_reference_error(location: Location, name: str) -> StorageFailure:
    """Return the error for a fork whose reference is damaged."""
    at = reference_location(location, name)
    return StorageFailure(
        f"the reference of branch '{name}' cannot be understood: '{at.uri}'",
        kind=TableFailureKind.UNKNOWN,
        uri=at.uri,
        remedy=f"delete branch '{name}', or restore that file from a backup",
    )


def find_fork(objects: ObjectStore, location: Location, name: str) -> Fork | None:
    """Return the fork of this name with one read; None when the store reports that there is none."""
    text = objects.read_text_if_exists(reference_location(location, name))
    if text is None:
        return None
    found = parse_reference(name, text)
    if found is None:
        raise damaged_reference_error(location, name)
    return found


def read_incarnation(objects: ObjectStore, location: Location, name: str) -> Incarnation | None:
    """Return the incarnation of a fork; None when there is no such fork or its reference is damaged."""
    text = objects.read_text_if_exists(reference_location(location, name))
    found = None if text is None else parse_reference(name, text)
    return None if found is None else found.identity


def parse_reference(name: str, text: str | bytes) -> Fork | None:
    """Return the fork that a reference describes; None when that cannot be understood."""
    try:
        facts: Any = json.loads(text)
        parent, version = facts["parentBranch"], int(facts["parentVersion"])
        if "identifier" in facts:
            mapping = facts["identifier"]["version_mapping"]
            identity = tuple((int(number), str(mark)) for number, mark in mapping)
        else:
            identity = _legacy_identity(name, parent, version, int(facts["createAt"]))
        notes = {str(key): str(value) for key, value in (facts.get("metadata") or {}).items()}
        return Fork(name, parent, version, identity, notes)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _legacy_identity(name: str, parent: str | None, version: int, created_at: int) -> Incarnation:
    """The identity that Lance derives for a reference of its early releases, which stored none."""
    facts = (
        f"branch_name={name}\nparent_branch={parent or ''}\nparent_version={version}\ncreate_at={created_at}"
    )
    return ((0, f"{_fnv1a64(facts, _FNV_BASIS):016x}{_fnv1a64(facts, _FNV_BASIS ^ _SECOND_HALF):016x}"),)


_FNV_BASIS, _FNV_PRIME, _SECOND_HALF = 0xCBF29CE484222325, 0x100000001B3, 0x9E3779B97F4A7C15


def _fnv1a64(text: str, basis: int) -> int:
    number = basis
    for byte in text.encode():
        number = (number ^ byte) * _FNV_PRIME & 0xFFFFFFFFFFFFFFFF
    return number


def fork_time(objects: ObjectStore, location: Location, name: str) -> int | None:
    """Return when a fork was made, in seconds since 1970; None where no reference says so."""
    text = objects.read_text_if_exists(reference_location(location, name))
    if text is None:
        return None
    try:
        return int(json.loads(text)["createAt"])
    except (ValueError, KeyError, TypeError):
        return None
