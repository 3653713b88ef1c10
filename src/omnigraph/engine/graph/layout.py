"""The paths of a graph's files below its root."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from typing import Literal

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import InvalidName
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage import version_files
from omnigraph.storage.location import Location

EntityKind = Literal["node", "edge"]

STAGING = "__staging"
LOCK_BRANCH = "__schema_apply_lock__"
"""A branch of the manifest that exists while a schema changes; it is not a branch of the graph."""

_FOLDERS: dict[EntityKind, str] = {"node": "nodes", "edge": "edges"}
ENTITY_FOLDERS = tuple(_FOLDERS.values())
"""Where the tables of types are."""
_TABLE_FOLDER = re.compile("[0-9a-f]{16}")
_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_U64 = (1 << 64) - 1


def fnv1a64(text: str) -> str:
    """The 64-bit FNV-1a hash of a text, as 16 hex digits."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _U64
    return f"{value:016x}"


def table_key(kind: EntityKind, type_name: str) -> str:
    """The name of a type's table in the manifest."""
    return f"{kind}:{type_name}"


def split_key(key: str) -> tuple[EntityKind, str]:
    """Kind and type name behind a table key."""
    kind, _, type_name = key.partition(":")
    if kind == "node" and type_name:
        return "node", type_name
    if kind == "edge" and type_name:
        return "edge", type_name
    raise InvalidName(key, f"'{key}' is not the name of a table")


def table_path(kind: EntityKind, type_name: str) -> str:
    """The folder of a type's table, relative to the root."""
    return f"{_FOLDERS[kind]}/{fnv1a64(type_name)}"


def is_part(name: str) -> bool:
    """Whether a name directly below a root may be that of a part of a graph, or is hidden."""
    own = ("_schema.pg", "_schema.ir.json", "_schema.ids.json", "_graph_commit_recoveries.lance")
    return name.startswith((".", "__", *own)) or name in (*ENTITY_FOLDERS, "lost+found")


def is_table_folder(name: str) -> bool:
    """Whether a name below `nodes` or `edges` may be that of a table, or is hidden."""
    return name.startswith(".") or _TABLE_FOLDER.fullmatch(name) is not None


def version_file(path: str, branch: str | None, version: int) -> str:
    """The file in which Lance describes a version of a table, relative to the root."""
    fork = f"/tree/{branch}" if branch is not None else ""
    return f"{path}{fork}/{version_files.version_file(version)}"


def table_keys(catalog: Catalog) -> list[str]:
    """The tables a schema needs, sorted."""
    nodes = (table_key("node", name) for name in catalog.nodes)
    edges = (table_key("edge", name) for name in catalog.edges)
    return sorted([*nodes, *edges])


def refuse_colliding_paths(keys: Iterable[str]) -> None:
    """Raise `InvalidName` when two type names hash to the same folder."""
    taken: dict[str, str] = {}
    for key in keys:
        kind, name = split_key(key)
        path = table_path(kind, name)
        if path in taken:
            raise InvalidName(
                name,
                f"{kind} types '{taken[path]}' and '{name}' would be stored in the same folder",
                remedy="rename one of them",
            )
        taken[path] = name


@lru_cache(maxsize=4096)
def _below(root: Location, path: str) -> Location:
    return root / path


@dataclass(frozen=True)
class Layout:
    """The paths of one graph; each is computed once, because every write needs most of them."""

    root: Location

    @cached_property
    def manifest(self) -> Location:
        """The dataset of commits and table versions."""
        return self.root / "__manifest"

    @cached_property
    def manifest_versions(self) -> Location:
        """Exists exactly when the graph does: an interrupted creation leaves a manifest without versions."""
        return self.manifest / "_versions"

    @cached_property
    def schema_source(self) -> Location:
        """The accepted schema as its author wrote it."""
        return self.root / "_schema.pg"

    @cached_property
    def schema_ir(self) -> Location:
        """The accepted schema, compiled."""
        return self.root / "_schema.ir.json"

    @cached_property
    def schema_state(self) -> Location:
        """The hash that binds source and compiled schema."""
        return self.root / "__schema_state.json"

    @cached_property
    def schema_ids(self) -> Location:
        """The identities of the accepted schema, which only this implementation knows."""
        return self.root / "_schema.ids.json"

    def staged(self, live: Location) -> Location:
        """The successor of a schema file, until the write that accepts it is published."""
        return self.root / f"{live.name}.staging"

    @cached_property
    def init_claim(self) -> Location:
        """Present while an initialisation runs, or when its outcome is unknown."""
        return self.root / "__init_claim.json"

    @cached_property
    def recovery(self) -> Location:
        """Records of writes in progress."""
        return self.root / "__recovery"

    @cached_property
    def audit(self) -> Location:
        """The dataset of recoveries that took place."""
        return self.root / "_graph_commit_recoveries.lance"

    @cached_property
    def past_schemas(self) -> Location:
        """The schemas of the past, by the commit that accepted each."""
        return self.root / "__schemas"

    def past_schema(self, commit_id: str) -> Location:
        """The schema that a commit accepted."""
        return self.past_schemas / f"{commit_id}.pg"

    @cached_property
    def place(self) -> Location:
        """Where the graph was when its forks were written: forks record their location."""
        return self.root / "__place.json"

    @cached_property
    def bases(self) -> Location:
        """What commits of deleted branches held that merges of other branches may start at."""
        return self.root / "__bases"

    @cached_property
    def tags(self) -> Location:
        """Tags, and the tagged commits of deleted branches; only this implementation knows it."""
        return self.root / "__tags"

    @cached_property
    def copy_note(self) -> Location:
        """Present while a copy to this place is not finished."""
        return self.root / "__copy.json"

    @cached_property
    def checksums(self) -> Location:
        """Checksums of files as they were written; may be deleted at any time."""
        return self.root / "__checksums"

    @cached_property
    def staging(self) -> Location:
        """Staged files of large loads, a folder for each load, named by its start time."""
        return self.root / STAGING

    @cached_property
    def derived(self) -> Location:
        """Derived data that speeds up reads after a restart; may be deleted at any time."""
        return self.root / "__derived"

    def table(self, path: str) -> Location:
        """A table by its path in the manifest."""
        return _below(self.root, path)

    def recorded_table(self, uri: str) -> Location:
        """Return a table recorded by its full URI, below this root: the graph may have been moved since."""
        _, folder, name = f"//{uri}".rsplit("/", 2)
        return self.table(f"{folder}/{name}" if folder in ENTITY_FOLDERS else name)
