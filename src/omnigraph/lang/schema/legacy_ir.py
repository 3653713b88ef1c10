"""The compiled schema as earlier releases of this package stored it, with the numbers of types inside.

Such files are read where a graph was not opened for writing since, and replaced by `ir.py`'s when it is.
"""

from __future__ import annotations

import hashlib
from typing import Any

from omnigraph.lang.schema.catalog import EdgeType, NodeType, TypeKind
from omnigraph.lang.schema.catalog_json import (
    Value,
    compact,
    edge_value,
    interface_value,
    meaning_fingerprint,
    node_value,
)
from omnigraph.lang.schema.identity import AcceptedSchema, Identities, PropertyRef, TypeRef

_GROUPS: tuple[tuple[TypeKind, str], ...] = (
    ("interface", "interfaces"),
    ("node", "nodes"),
    ("edge", "edges"),
)


def is_legacy(value: Value) -> bool:
    """Whether a compiled schema has the old shape."""
    return "next_type_id" in value


def legacy_ir(accepted: AcceptedSchema) -> Value:
    """Return the old shape of a schema."""
    identities = accepted.known_identities
    groups: dict[str, list[Value]] = {group: [] for _, group in _GROUPS}
    for kind, owner in accepted.catalog.owners():
        if isinstance(owner, NodeType):
            value = node_value(owner)
        elif isinstance(owner, EdgeType):
            value = edge_value(owner)
        else:
            value = interface_value(owner)
        groups[dict(_GROUPS)[kind]].append(_with_numbers(kind, value, identities))
    return {
        "ir_version": 1,
        **groups,
        "next_type_id": identities.next_type,
        "next_prop_id": identities.next_property,
    }


def _with_numbers(kind: TypeKind, value: Value, identities: Identities) -> Value:
    owner = value["name"]
    properties = [
        {**each, "prop_id": identities.properties[kind, owner, each["name"]]} for each in value["properties"]
    ]
    return {**value, "type_id": identities.types[kind, owner], "properties": properties}


def legacy_hash(value: Value) -> str:
    """Return what the old shape is recognised by."""
    return f"sha256:{hashlib.sha256(compact(value).encode()).hexdigest()}"


def read_legacy(value: Value) -> tuple[str, Identities]:
    """Return the fingerprint and the identities of an old shape; `ValueError` when it is damaged."""
    try:
        return _read(value)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is damaged at {error}") from error


def _read(value: Value) -> tuple[str, Identities]:
    types: dict[TypeRef, int] = {}
    properties: dict[PropertyRef, int] = {}
    bare: dict[str, list[Value]] = {}
    for kind, group in _GROUPS:
        bare[group] = []
        for each in value[group]:
            types[kind, each["name"]] = _number(each["type_id"])
            for member in each["properties"]:
                properties[kind, each["name"], member["name"]] = _number(member["prop_id"])
            members = [_without(member, "prop_id") for member in each["properties"]]
            bare[group].append({**_without(each, "type_id"), "properties": members})
    following = _number(value["next_type_id"]), _number(value["next_prop_id"])
    return meaning_fingerprint(bare), Identities(types, properties, *following)


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(repr(value))
    return value


def _without(value: Value, key: str) -> Value:
    return {name: member for name, member in value.items() if name != key}
