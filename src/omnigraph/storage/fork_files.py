"""List and remove the files that belong to one fork only.

A fork is stored in the folder `tree/<name>` of its table, all of it in folders of fixed names. The folder of
`a/b` is inside that of `a`, and the folder of `a/data` is the very one in which the rows of `a` are. So a
folder is removed as a whole only where no other fork can have files in it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore

PARTS = frozenset({"_versions", "data", "_transactions", "_deletions", "_indices", "_refs"})
"""The folders of which a fork consists."""


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """The files of one fork: whole folders, and single files."""

    folders: tuple[Location, ...]
    files: tuple[Location, ...] = ()


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
    parts = [_own_in(objects, at / part, _beneath(part, below)) for part in sorted(PARTS)]
    return OwnFiles(
        tuple(folder for own in parts for folder in own.folders),
        tuple(file for own in parts for file in own.files),
    )


def _beneath(part: str, below: Collection[str]) -> list[str] | None:
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


def remove_files(objects: ObjectStore, own: OwnFiles) -> None:
    """Remove all of it; what is gone already is fine."""
    for file in own.files:
        objects.delete(file)
    for folder in own.folders:
        objects.delete_prefix(folder)
