"""Tags: names of commits. A tagged commit stays readable, also after its branch was deleted.

    __tags/<name>.json             which commit a tag names; `/` in a name is `%2F`
    __tags/<commit>/commit.json    a tagged commit whose branch was deleted: its history and its tables
    __tags/<commit>/<table>        those of its tables that were on the fork of its branch

Earlier releases and other implementations skip this folder: they do not know tags, and their cleanup does not
keep what only a tag needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.branch_names import LONGEST_NAME, parse_name
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.errors import CorruptGraph, InvalidName, InvalidValue
from omnigraph.lang.dates import parse_datetime
from omnigraph.storage.concurrency import Together
from omnigraph.storage.location import Location

FORMAT = 1
COMMIT_FILE = "commit.json"
_ENDING = ".json"
_COMMIT_ID = re.compile("[0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{26}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Tag:
    """A name of a commit."""

    name: str
    commit_id: str
    created_at: int
    """Microseconds since 1970."""
    actor: str | None = None
    message: str | None = None
    """What its author wrote about it."""

    @property
    def time(self) -> datetime:
        """When it was created or moved, in UTC."""
        return _EPOCH + timedelta(microseconds=self.created_at)

    def to_json(self) -> dict[str, Any]:
        """Return the tag as scripts read it."""
        return {
            "name": self.name,
            "graph_commit_id": self.commit_id,
            "created_at": self.created_at,
            "actor_id": self.actor,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class TagSurvey:
    """All tags of a graph: what the files say that can be understood, and the errors of the others."""

    tags: tuple[Tag, ...]
    """By name."""
    broken: Mapping[str, CorruptGraph]
    """By the name of the tag."""


class _TagFormat(msgspec.Struct, frozen=True):
    format: int


class _TagFile(msgspec.Struct, frozen=True):
    format: int
    commit_id: str
    created_at: int
    actor: str | None = None
    message: str | None = None


# --- names ---------------------------------------------------------------------------------------


def parse_tag_name(text: str) -> str:
    """Return the name of a tag in a user's text; raises `InvalidName`."""
    name = parse_name(text, "tag")
    if name == MAIN:
        raise InvalidName(name, f"'{MAIN}' is the branch every graph has", remedy="choose another name")
    if looks_like_commit(name):
        raise InvalidName(name, f"'{name}' could be the id of a commit", remedy="choose another name")
    with suppress(InvalidValue):
        parse_datetime(name)
        raise InvalidName(name, f"'{name}' could be a time", remedy="choose another name")
    return name


def looks_like_commit(text: str) -> bool:
    """Whether a text has the form of a commit's id."""
    return _COMMIT_ID.fullmatch(text) is not None


# --- files of tags -------------------------------------------------------------------------------


def tag_location(root: Root, name: str) -> Location:
    """Return where a tag is stored."""
    return root.layout.tags / f"{quote(name, safe='', errors='surrogatepass')}{_ENDING}"


def read_tag(root: Root, name: str) -> Tag | None:
    """Return a tag; None when there is none of that name, and `CorruptGraph` when it cannot be understood."""
    if _is_too_long(name):
        return None
    body = root.objects.read_bytes_if_exists(tag_location(root, name))
    return None if body is None else _decode_tag(name, body)


def _is_too_long(name: str) -> bool:
    """Whether no file can have this name: a store may answer such a question with an error."""
    return len(quote(name, safe="", errors="replace")) > LONGEST_NAME


def encode_tag(tag: Tag) -> str:
    """Return the content of a tag's file; no two are equal."""
    file = _TagFile(FORMAT, tag.commit_id, tag.created_at, tag.actor, tag.message)
    return msgspec.json.encode(file).decode()


def _decode_tag(name: str, body: bytes) -> Tag:
    try:
        format_, found = msgspec.json.decode(body, type=_TagFormat).format, None
        if format_ == FORMAT:
            found = msgspec.json.decode(body, type=_TagFile)
    except msgspec.MsgspecError as error:
        raise CorruptGraph(
            f"the file of tag '{name}' cannot be understood", object_id=name, remedy="delete the tag"
        ) from error
    if found is None:
        raise CorruptGraph(
            f"tag '{name}' was written by a newer release",
            object_id=name,
            remedy="use that release, or delete the tag",
        )
    return Tag(name, found.commit_id, found.created_at, found.actor, found.message)


def list_tag_names(root: Root) -> list[str]:
    """Return the names of all tags, in order."""
    names = (at.name for at in root.objects.list_dir(root.layout.tags))
    return sorted(unquote(name.removesuffix(_ENDING)) for name in names if name.endswith(_ENDING))


def list_tags(root: Root) -> list[Tag]:
    """Return all tags by name; raises `CorruptGraph` when one cannot be understood.

    For callers that remove what no tag keeps.
    """
    found = survey_tags(root)
    for error in found.broken.values():
        raise error
    return list(found.tags)


def survey_tags(root: Root) -> TagSurvey:
    """Return all tags, those apart that cannot be understood; one that is deleted meanwhile is skipped."""
    names = list_tag_names(root)
    with Together(root.layout.root) as calls:
        read = [calls.add(partial(_try_read_tag, root, name)) for name in names]
    found = [(name, one.answer) for name, one in zip(names, read, strict=True)]
    return TagSurvey(
        tuple(tag for _, tag in found if isinstance(tag, Tag)),
        {name: error for name, error in found if isinstance(error, CorruptGraph)},
    )


def _try_read_tag(root: Root, name: str) -> Tag | CorruptGraph | None:
    try:
        return read_tag(root, name)
    except CorruptGraph as error:
        return error


def tags_by_commit(tags: Iterable[Tag]) -> dict[str, tuple[str, ...]]:
    """Return the names of tags by the commit that they name."""
    found: dict[str, tuple[str, ...]] = {}
    for tag in tags:
        found[tag.commit_id] = (*found.get(tag.commit_id, ()), tag.name)
    return found


# --- commits of deleted branches -----------------------------------------------------------------


class KeptTable(msgspec.Struct, frozen=True):
    """A table of a kept commit: a version of main's table, or a copy beside the commit."""

    path: str
    version: int
    row_count: int | None = None


class KeptFile(msgspec.Struct, frozen=True):
    """A tagged commit of a deleted branch, as it is stored."""

    format: int
    incarnation: list[tuple[int, str]]
    history: list[dict[str, Any]]
    """The commit, then those of its ancestors that main does not show."""
    tables: dict[str, KeptTable]


@dataclass(frozen=True, slots=True)
class KeptCommit:
    """A tagged commit whose branch was deleted."""

    snapshot: Snapshot
    history: Mapping[str, Commit]
    """The commit, and those of its ancestors that main does not show, by id."""


def kept_folder(root: Root, commit_id: str) -> Location:
    """Return where a commit of a deleted branch is kept."""
    return root.layout.tags / quote(commit_id, safe="", errors="surrogatepass")


def list_kept_commits(root: Root) -> frozenset[str]:
    """Return the ids of the commits of deleted branches that are kept."""
    return frozenset(unquote(name) for name in root.objects.list_folders(root.layout.tags))


def read_kept_commit(root: Root, commit_id: str) -> KeptCommit | None:
    """Return a kept commit; None when it is not kept."""
    if not commit_id.strip(".") or _is_too_long(commit_id):
        return None  # no folder has such a name
    text = root.objects.read_text_if_exists(kept_folder(root, commit_id) / COMMIT_FILE)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text, type=KeptFile)
        history = {one.id: one for one in (Commit(**facts) for facts in found.history)}
        commit = history[commit_id]
    except (msgspec.MsgspecError, TypeError, KeyError) as error:
        raise CorruptGraph(f"kept commit '{commit_id}' cannot be understood", object_id=commit_id) from error
    if found.format != FORMAT:
        raise CorruptGraph(f"commit '{commit_id}' was kept by a newer release", object_id=commit_id)
    entries = {
        key: TableEntry(key, table.path, table.version, None, table.row_count)
        for key, table in sorted(found.tables.items())
    }
    incarnation = tuple(found.incarnation)
    return KeptCommit(Snapshot(commit.branch, commit.version, commit, entries, incarnation), history)


def kept_versions(
    root: Root, commits: Iterable[str], *, skip_broken: bool = False
) -> Iterator[tuple[str, int]]:
    """Yield the paths and versions of main's tables that kept commits need."""
    own = f"{root.layout.tags.name}/"
    for commit_id in sorted(commits):
        try:
            found = read_kept_commit(root, commit_id)
        except CorruptGraph:
            if not skip_broken:
                raise
            continue
        for entry in found.snapshot.entries.values() if found else ():
            if not entry.path.startswith(own):
                yield entry.path, entry.version
