"""The identities of a schema as a file of our own beside the compiled schema.

It names the compiled schema that it belongs to. Another implementation may change the schema without knowing
this file: then the hash differs, and the identities follow by names and rename hints.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from omnigraph.lang.schema.catalog import TypeKind
from omnigraph.lang.schema.identity import Identities, PropertyRef, TypeRef

_FORMAT = 1
_KINDS: dict[str, TypeKind] = {"interface": "interface", "node": "node", "edge": "edge"}


def render_identities(identities: Identities, ir_hash: str) -> str:
    """Return the text of the file."""
    members = identities.by_owner()
    types = [
        {"kind": ref[0], "name": ref[1], "type_id": number, "properties": dict(sorted(members[ref].items()))}
        for ref, number in sorted(identities.types.items(), key=lambda item: item[1])
    ]
    value = {
        "format_version": _FORMAT,
        "schema_ir_hash": ir_hash,
        "next_type_id": identities.next_type,
        "next_prop_id": identities.next_property,
        "types": types,
    }
    return json.dumps({**value, "checksum": _checksum(value)}, indent=2, ensure_ascii=False)


def _checksum(value: dict[str, Any]) -> str:
    content = {name: member for name, member in value.items() if name != "checksum"}
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def parse_identities(text: str) -> tuple[Identities, str]:
    """Return the identities and the hash of the compiled schema they are of; `ValueError` when damaged."""
    try:
        return _read(json.loads(text))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is damaged at {error}") from error


def _read(value: Any) -> tuple[Identities, str]:
    if value["format_version"] != _FORMAT:
        raise ValueError(f"it has format {value['format_version']}, and this release reads {_FORMAT}")
    if value["checksum"] != _checksum(value):
        raise ValueError("its content is not what was written")
    types: dict[TypeRef, int] = {}
    properties: dict[PropertyRef, int] = {}
    for each in value["types"]:
        kind = _KINDS[each["kind"]]
        types[kind, str(each["name"])] = _number(each["type_id"])
        for member, number in each["properties"].items():
            properties[kind, str(each["name"]), str(member)] = _number(number)
    found = Identities(types, properties, _number(value["next_type_id"]), _number(value["next_prop_id"]))
    _check_numbers(found)
    return found, str(value["schema_ir_hash"])


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(repr(value))
    return value


def _check_numbers(found: Identities) -> None:
    for what, numbers, following in (
        ("type_id", found.types.values(), found.next_type),
        ("prop_id", found.properties.values(), found.next_property),
    ):
        if len(set(numbers)) != len(numbers):
            raise ValueError(f"a {what} is used twice")
        if any(not 0 < number < following for number in numbers):
            raise ValueError(f"a {what} is not below the next one")
