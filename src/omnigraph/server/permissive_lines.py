"""The older way to read records: members that the schema does not have are ignored.

Strict reading comes first and is what nearly all loads end with; only lines that it refused come here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType

_ENVELOPE = {"type": ("type", "data"), "edge": ("edge", "from", "to", "data")}
_KEPT = frozenset({"id"})
"""Not a property, and yet checked: an id must be that of the key."""


def drop_unknown_members(data: bytes, catalog: Catalog) -> tuple[bytes, list[str]]:
    """Return the lines without members that nothing in the schema is called, and the names of these.

    A line that is no record stays as it is: the load reports what is wrong with it.
    """
    dropped: set[str] = set()
    lines = b"\n".join(_known(line, catalog, dropped) for line in data.split(b"\n"))
    return lines, sorted(dropped)


def _known(line: bytes, catalog: Catalog, dropped: set[str]) -> bytes:
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return line
    if not isinstance(record, dict):
        return line
    kind = next((name for name in _ENVELOPE if name in record), None)
    if kind is None:
        return line
    before = len(dropped)
    kept = dict(_members(record, frozenset(_ENVELOPE[kind]), "record", dropped))
    owner, fields = _owner(kind, record, catalog), kept.get("data")
    if owner is not None and isinstance(fields, dict):
        kept["data"] = dict(_members(fields, _KEPT | owner.properties.keys(), owner.name, dropped))
    return msgspec.json.encode(kept) if len(dropped) > before or kept != record else line


def _owner(kind: str, record: Mapping[str, Any], catalog: Catalog) -> NodeType | EdgeType | None:
    name = record[kind]
    if not isinstance(name, str):
        return None
    return catalog.nodes.get(name) if kind == "type" else catalog.edges.get(name)


def _members(
    record: Mapping[str, Any], known: frozenset[str], owner: str, dropped: set[str]
) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        # A name of the storage is a mistake, and not a member of another version of the schema.
        if name in known or name.startswith("_"):
            yield name, value
        else:
            dropped.add(f"{owner}.{name}")
