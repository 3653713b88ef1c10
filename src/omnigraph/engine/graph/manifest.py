"""Rows of `__manifest`, and the state of a branch they add up to.

The manifest holds one row for each table, one for each published version of it, one for each commit, one for
each commit of another branch that a merge took in, and one head for each branch. Only the head row is ever
rewritten, except that a version may pass from one owner branch to another without a change of content.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import version_file
from omnigraph.engine.graph.lineage import Commit, find_head
from omnigraph.errors import CorruptGraph

KEY = "object_id"
STAMP = "omnigraph:internal_schema_version"
CREATED_AT = "_row_created_at_version"
UPDATED_AT = "_row_last_updated_at_version"
ADDRESS = "_rowaddr"

SCHEMA = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.string())),
        pa.field("table_key", pa.string(), nullable=False),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
    ]
)
COLUMNS = (
    KEY,
    "object_type",
    "location",
    "metadata",
    "table_key",
    "table_version",
    "table_branch",
    "row_count",
)

TABLE, VERSION, TOMBSTONE, COMMIT, MERGED, HEAD = (
    "table",
    "table_version",
    "table_tombstone",
    "graph_commit",
    "merged_commit",
    "graph_head",
)
MAIN = "main"
_HEAD_PREFIX = "graph_head:"


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A published version of a table."""

    key: str
    version: int
    owner: str | None
    """The branch whose fork holds it; None for main."""
    row_count: int | None


@dataclass(frozen=True, slots=True)
class Records:
    """Rows of the manifest, by kind. Rows of unknown kinds are skipped."""

    locations: Mapping[str, str] = field(default_factory=dict)
    versions: Sequence[TableVersion] = ()
    tombstones: Mapping[str, int] = field(default_factory=dict)
    commits: Sequence[Commit] = ()
    heads: Mapping[str, str] = field(default_factory=dict)
    merged: Sequence[Commit] = ()
    """Commits of other branches, recorded by the merges that took them in."""
    head_addresses: Mapping[str, int] = field(default_factory=dict)
    """The addresses of the head rows of branches, where they were read."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table as a snapshot shows it."""

    key: str
    path: str
    version: int
    owner: str | None
    row_count: int | None


@dataclass(frozen=True)
class ManifestState:
    """What a branch's manifest says at one of its versions."""

    version: int
    locations: Mapping[str, str]
    versions: Mapping[str, TableVersion]
    """The newest published version of each table, dropped ones included."""
    tombstones: Mapping[str, int]
    commits: Mapping[str, Commit]
    heads: Mapping[str, str]
    head: Commit | None
    merged: Mapping[str, Commit] = field(default_factory=dict)
    """Commits of other branches that merges took in. They stay known when their branch is deleted.

    Commits of main are omitted: main always shows them itself.
    """

    def entries(self) -> Mapping[str, TableEntry]:
        """Return the tables that exist, by key, sorted."""
        return self._entries

    @cached_property
    def _entries(self) -> Mapping[str, TableEntry]:
        found = {}
        for key in sorted(self.versions):
            pinned = self.versions[key]
            if pinned.version <= self.tombstones.get(key, -1):
                continue
            if key not in self.locations:
                raise CorruptGraph(
                    f"the manifest has versions of table '{key}' but no location for it", object_id=key
                )
            found[key] = TableEntry(key, self.locations[key], pinned.version, pinned.owner, pinned.row_count)
        return found

    def latest_version(self, key: str) -> int:
        """Return the version a write may expect: live, that of a tombstone, or 0 for an unknown table."""
        pinned = self.versions.get(key)
        dropped = self.tombstones.get(key, 0)
        return dropped if pinned is None else max(pinned.version, dropped)

    def is_continued_by(self, records: Records) -> bool:
        """Whether the parent of every commit in these rows is known."""
        new = {commit.id for commit in records.commits}
        return all(
            commit.parent in new or commit.parent in self.commits or commit.id in self.commits
            for commit in records.commits
        )

    def plus(self, records: Records, version: int) -> ManifestState:
        """Return the state after these rows were added or rewritten."""
        commits = {**self.commits, **{commit.id: commit for commit in records.commits}}
        newest = find_head(filter(None, [self.head, *records.commits]))
        return ManifestState(
            version=version,
            locations={**self.locations, **records.locations},
            versions=_newest(self.versions, records.versions),
            tombstones=_highest(self.tombstones, records.tombstones),
            commits=commits,
            heads={**self.heads, **records.heads},
            head=newest,
            merged={**self.merged, **{commit.id: commit for commit in records.merged}},
        )


EMPTY_STATE = ManifestState(0, {}, {}, {}, {}, {}, None)


def _newest(known: Mapping[str, TableVersion], more: Iterable[TableVersion]) -> dict[str, TableVersion]:
    found = dict(known)
    for one in more:
        # An equal version is a handoff to another owner: the later row holds.
        if one.key not in found or found[one.key].version <= one.version:
            found[one.key] = one
    return found


def _highest(known: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {**known, **{key: max(value, known.get(key, value)) for key, value in more.items()}}


# --- rows to values ------------------------------------------------------------------------------


def decode(rows: pa.Table) -> Records:
    """The values behind manifest rows: `COLUMNS`, and `CREATED_AT` and `ADDRESS` where they are known."""
    rows = rows.combine_chunks()  # a fragment each, and every step below would go through all of them
    kinds = rows.column("object_type")
    by_kind = {
        kind: rows.filter(pc.equal(kinds, kind)) for kind in (TABLE, VERSION, TOMBSTONE, COMMIT, MERGED, HEAD)
    }
    return Records(
        locations=_locations(by_kind[TABLE]),
        versions=_versions(by_kind[VERSION]),
        tombstones=_tombstones(by_kind[TOMBSTONE]),
        commits=_commits(by_kind[COMMIT]),
        heads=_heads(by_kind[HEAD]),
        merged=_merged(by_kind[MERGED]),
        head_addresses=_head_addresses(by_kind[HEAD]),
    )


def _locations(rows: pa.Table) -> dict[str, str]:
    found = dict(zip(*_columns(rows, "table_key", "location"), strict=True))
    for key, location in found.items():
        if not location:
            raise CorruptGraph(f"manifest row '{key}' has no location", object_id=key)
    return found


def _versions(rows: pa.Table) -> list[TableVersion]:
    ordered = rows.sort_by("table_version")
    # Only the newest row of each table matters, so only those become Python values.
    newest = {key: position for position, key in enumerate(ordered.column("table_key").to_pylist())}
    return _table_versions(ordered.take(pa.array(newest.values(), pa.int64())))


def decode_published(rows: pa.Table) -> list[tuple[int, TableVersion]]:
    """The versions of tables behind manifest rows, oldest first, with the manifest version that has each."""
    ordered = rows.sort_by("table_version")
    return list(zip(ordered.column(CREATED_AT).to_pylist(), _table_versions(ordered), strict=True))


def _table_versions(rows: pa.Table) -> list[TableVersion]:
    names = (KEY, "table_key", "table_version", "table_branch", "row_count")
    return [
        TableVersion(key, _required(version, object_id, "table_version"), owner, row_count)
        for object_id, key, version, owner, row_count in zip(*_columns(rows, *names), strict=True)
    ]


def _tombstones(rows: pa.Table) -> dict[str, int]:
    found: dict[str, int] = {}
    for object_id, key, version in zip(*_columns(rows, KEY, "table_key", "table_version"), strict=True):
        found[key] = max(_required(version, object_id, "table_version"), found.get(key, 0))
    return found


def _commits(rows: pa.Table) -> list[Commit]:
    names = (KEY, "table_version", "table_branch", "metadata")
    found = [_commit(*values) for values in zip(*_columns(rows, *names), strict=True)]
    if CREATED_AT not in rows.column_names:
        return found
    created = rows.column(CREATED_AT).to_pylist()
    # Several commits created in one version were copied in by a migration: no older version ever showed
    # them, and the versions they recorded are exact. A first commit may have been copied in alone, and
    # nothing precedes it that could have displaced it. Any other commit has the version of its row.
    together = Counter(created)
    return [
        commit if together[version] > 1 or commit.parent is None else replace(commit, version=version)
        for commit, version in zip(found, created, strict=True)
    ]


def _merged(rows: pa.Table) -> list[Commit]:
    names = (KEY, "table_version", "table_branch", "metadata")
    found = (_commit(*values) for values in zip(*_columns(rows, *names), strict=True))
    return [replace(commit, id=commit.id.removeprefix(f"{MERGED}:")) for commit in found]


def _commit(object_id: str, version: int | None, branch: str | None, metadata: str | None) -> Commit:
    facts = _json(object_id, metadata)
    created_at = facts.get("created_at")
    if not isinstance(created_at, int) or isinstance(created_at, bool):
        raise CorruptGraph(f"manifest row '{object_id}' has no time of creation", object_id=object_id)
    return Commit(
        id=object_id,
        branch=branch or MAIN,
        version=_required(version, object_id, "table_version"),
        created_at=created_at,
        parent=_optional_text(object_id, facts, "parent_commit_id"),
        merged_parent=_optional_text(object_id, facts, "merged_parent_commit_id"),
        actor=_optional_text(object_id, facts, "actor_id"),
        message=_optional_text(object_id, facts, "message"),
        operation=_optional_text(object_id, facts, "operation"),
    )


def _optional_text(object_id: str, facts: Mapping[str, Any], name: str) -> str | None:
    found = facts.get(name)
    if found is not None and not isinstance(found, str):
        raise CorruptGraph(
            f"manifest row '{object_id}' has a {name} that is not a string", object_id=object_id
        )
    return found


def _heads(rows: pa.Table) -> dict[str, str]:
    found = {}
    for object_id, metadata in zip(*_columns(rows, KEY, "metadata"), strict=True):
        commit_id = _json(object_id, metadata).get("head_commit_id")
        if not isinstance(commit_id, str):
            raise CorruptGraph(f"manifest row '{object_id}' names no commit", object_id=object_id)
        found[object_id.removeprefix(_HEAD_PREFIX)] = commit_id
    return found


def _head_addresses(rows: pa.Table) -> dict[str, int]:
    if ADDRESS not in rows.column_names:
        return {}
    found = zip(*_columns(rows, KEY, ADDRESS), strict=True)
    return {object_id.removeprefix(_HEAD_PREFIX): address for object_id, address in found}


def _columns(rows: pa.Table, *names: str) -> list[list[Any]]:
    return [rows.column(name).to_pylist() for name in names]


def _json(object_id: str, text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError) as error:
        raise CorruptGraph(
            f"manifest row '{object_id}' has unreadable metadata", object_id=object_id
        ) from error
    if not isinstance(found, dict):
        raise CorruptGraph(f"manifest row '{object_id}' has unreadable metadata", object_id=object_id)
    return found


def _required(value: int | None, object_id: str, column: str) -> int:
    if value is None:
        raise CorruptGraph(f"manifest row '{object_id}' has no {column}", object_id=object_id)
    return value


# --- values to rows ------------------------------------------------------------------------------


def head_key(branch: str) -> str:
    """Return the key of the row that names the newest commit of a branch."""
    return f"{_HEAD_PREFIX}{branch}"


def encode(records: Records, paths: Mapping[str, str], known: Mapping[str, Commit] | None = None) -> pa.Table:
    """Manifest rows for values; `paths` has the place of every table they mention.

    `known` are commits that heads may name although their own rows are stored already. Heads come last.
    """
    rows = [
        *(_table_row(key, path) for key, path in records.locations.items()),
        *(_version_row(one, paths[one.key]) for one in records.versions),
        *(_tombstone_row(key, version) for key, version in records.tombstones.items()),
        *(_commit_row(commit) for commit in records.commits),
        *(_merged_row(commit) for commit in records.merged),
    ]
    parents = {commit.id: commit.parent for commit in (*(known or {}).values(), *records.commits)}
    rows += [
        _head_row(branch, commit_id, parents.get(commit_id)) for branch, commit_id in records.heads.items()
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _row(object_id: str, kind: str, **columns: Any) -> dict[str, Any]:
    return {KEY: object_id, "object_type": kind, "table_key": "", **columns}


def _table_row(key: str, path: str) -> dict[str, Any]:
    return _row(key, TABLE, table_key=key, location=path)


def _version_row(one: TableVersion, path: str) -> dict[str, Any]:
    metadata = {
        "manifest_path": version_file(path, one.owner, one.version),
        "manifest_size": None,
        "e_tag": None,
        "naming_scheme": "V2",
    }
    return _row(
        f"{one.key}${one.version:020d}",
        VERSION,
        table_key=one.key,
        table_version=one.version,
        table_branch=one.owner,
        row_count=one.row_count,
        metadata=_text(metadata),
    )


def _tombstone_row(key: str, version: int) -> dict[str, Any]:
    return _row(f"{key}$tombstone${version:020d}", TOMBSTONE, table_key=key, table_version=version)


def _commit_row(commit: Commit) -> dict[str, Any]:
    return _row(commit.id, COMMIT, **_commit_columns(commit))


def _merged_row(commit: Commit) -> dict[str, Any]:
    return _row(f"{MERGED}:{commit.id}", MERGED, **_commit_columns(commit))


def _commit_columns(commit: Commit) -> dict[str, Any]:
    metadata = {
        "parent_commit_id": commit.parent,
        "merged_parent_commit_id": commit.merged_parent,
        "actor_id": commit.actor,
        "created_at": commit.created_at,
        # Ours alone: other implementations, and older releases, skip members that they do not know.
        "message": commit.message,
        "operation": commit.operation,
    }
    present = {key: value for key, value in metadata.items() if value is not None}
    return {"table_version": commit.version, "table_branch": commit.branch, "metadata": _text(present)}


def _head_row(branch: str, commit_id: str, parent: str | None) -> dict[str, Any]:
    metadata = {"head_commit_id": commit_id} | ({"parent_commit_id": parent} if parent else {})
    return _row(head_key(branch), HEAD, metadata=_text(metadata))


_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Compact JSON."""
