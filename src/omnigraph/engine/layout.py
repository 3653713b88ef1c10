"""Where the parts of a graph are below its root."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from omnigraph.errors import InvalidName
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.storage import version_files
from omnigraph.storage.location import Location

EntityKind = Literal["node", "edge"]

STAGING = "__staging"

_FOLDERS: dict[EntityKind, str] = {"node": "nodes", "edge": "edges"}
ENTITY_FOLDERS = tuple(_FOLDERS.values())
"""Where the tables of types are."""
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
    """Two type names may hash to one folder; such a schema cannot be stored."""
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
    """The places of one graph; every write asks for most of them, so they are made once."""

    root: Location

    @cached_property
    def manifest(self) -> Location:
        """The dataset of commits and table versions."""
        return self.root / "__manifest"

    @cached_property
    def manifest_versions(self) -> Location:
        """There as soon as there is a graph: files of a manifest whose creation was cut short are none."""
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

    def staged(self, live: Location) -> Location:
        """The successor of a schema file, until the write that accepts it is published."""
        return self.root / f"{live.name}.staging"

    @cached_property
    def init_claim(self) -> Location:
        """Present while an initialisation runs, or when nobody knows how it ended."""
        return self.root / "__init_claim.json"

    @cached_property
    def recovery(self) -> Location:
        """Records of writes under way; empty when nothing is."""
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
    def staging(self) -> Location:
        """Where the files of large loads wait, a folder for each load, named by when it began."""
        return self.root / STAGING

    @cached_property
    def derived(self) -> Location:
        """What reads keep to be fast after a restart; it may be deleted at any time."""
        return self.root / "__derived"

    def table(self, path: str) -> Location:
        """A table by its path in the manifest."""
        return _below(self.root, path)
