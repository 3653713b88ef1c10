"""The compiled schema as a graph stores it.

The shape, the order of its members and the hash over its compact text are those of the reference
implementation, so that both read and write the same files. It follows from the schema text alone: what a
graph knows beyond the text, the numbers that survive a rename, is in a file of its own (`identity_file.py`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omnigraph.lang.schema import schema_ast as ast
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType, TypeKind
from omnigraph.lang.schema.catalog_json import (
    Value,
    compact,
    edge_value,
    interface_value,
    meaning_fingerprint,
    node_value,
    type_value,
)
from omnigraph.lang.schema.check import ExpandedType, check_schema
from omnigraph.lang.schema.identity import AcceptedSchema, Identities, PropertyRef, TypeRef
from omnigraph.lang.schema.interfaces import MARKS, Members
from omnigraph.lang.schema.schema_parser import parse_schema
from omnigraph.lang.source import Source

IR_VERSION = 1

_FNV_OFFSET, _FNV_PRIME, _U32 = 2_166_136_261, 16_777_619, (1 << 32) - 1
_GROUPS: Mapping[TypeKind, str] = {"interface": "interfaces", "node": "nodes", "edge": "edges"}
_SCIENTIFIC_FROM, _SCIENTIFIC_BELOW = 1e16, 1e-5
_EXPONENT = re.compile("[0-9]e[-+]?[0-9]")


def compile_with_ir(text: str | Source, name: str | None = None) -> tuple[Catalog, Value]:
    """Return the catalog of a schema text and its compiled form."""
    source = text if isinstance(text, Source) else Source(text, name)
    catalog, types = check_schema(parse_schema(source), source)
    return catalog, build_ir(types)


def build_ir(types: Iterable[ExpandedType]) -> Value:
    """Return the compiled form of checked declarations."""
    groups: dict[str, list[Value]] = {group: [] for group in _GROUPS.values()}
    for each in sorted(types, key=lambda found: found.name):
        groups[_GROUPS[each.kind]].append(_build_type(each))
    return {"ir_version": IR_VERSION, **groups}


def _build_type(found: ExpandedType) -> Value:
    declared = found.declared
    head: Value = {"name": found.name, "type_id": hash_fnv1a32(f"{found.kind}:{found.name}")}
    properties = {"properties": _build_properties(found.kind, found.name, found.members)}
    if isinstance(declared, ast.Interface):
        return {**head, **properties}
    annotations = {"annotations": _build_annotations(declared.annotations)}
    constraints = {"constraints": _build_constraints(found.members, declared.constraints)}
    if isinstance(declared, ast.Node):
        implements = {"implements": sorted({name.text for name in declared.implements})}
        return {**head, **annotations, **implements, **properties, **constraints}
    card = declared.card
    ends: Value = {
        "from_type": declared.source.text,
        "to_type": declared.target.text,
        "cardinality": {"min": card.minimum if card else 0, "max": card.maximum if card else None},
    }
    return {**head, **ends, **annotations, **properties, **constraints}


def _build_properties(kind: TypeKind, owner: str, members: Members) -> list[Value]:
    return [
        {
            "name": name,
            "prop_id": hash_fnv1a32(f"{kind}:{owner}:{name}"),
            "prop_type": type_value(members[name].declared.type),
            "annotations": _build_annotations(members[name].declared.annotations),
        }
        for name in sorted(members)
    ]


def _build_annotations(found: Sequence[ast.Annotation]) -> list[Value]:
    values = [_build_annotation(each) for each in found]
    return sorted(values, key=lambda each: (each["name"], each["value"] is not None, each["value"] or ""))


def _build_annotation(found: ast.Annotation) -> Value:
    value: Value = {"name": found.name, "value": found.value.text if found.value else None}
    options = {option: argument.text for option, argument in found.options}
    return {**value, "kwargs": dict(sorted(options.items()))} if options else value


def _build_constraints(members: Members, body: Sequence[ast.Constraint]) -> list[Value]:
    marks = [
        _name_constraint(mark.name, [name])
        for name, member in members.items()
        for mark in member.declared.annotations
        if mark.name in MARKS and mark.value is None
    ]
    found = [*(_build_constraint(each) for each in body), *marks]
    return [value for _, value in sorted(found, key=lambda each: each[0])]


def _build_constraint(found: ast.Constraint) -> tuple[str, Value]:
    """Return the text a constraint is sorted by, and its value."""
    match found:
        case ast.ColumnConstraint():
            return _name_constraint(found.name, sorted(column.text for column in found.columns))
        case ast.CheckConstraint():
            column = found.column.text
            return f"check:{column}:{found.pattern}", {
                "Check": {"property": column, "pattern": found.pattern}
            }
        case ast.RangeConstraint():
            column, bounds = (
                found.column.text,
                {"min": _build_bound(found.minimum), "max": _build_bound(found.maximum)},
            )
            order = ":".join(_format_bound(bound) for bound in bounds.values())
            return f"range:{column}:{order}", {"Range": {"property": column, **bounds}}


def _name_constraint(name: str, columns: list[str]) -> tuple[str, Value]:
    return f"{name}:{','.join(columns)}", {name.capitalize(): columns}


def _build_bound(value: int | float | None) -> Value | None:
    if value is None:
        return None
    return {"Float": value} if isinstance(value, float) else {"Integer": value}


def _format_bound(bound: Value | None) -> str:
    if bound is None:
        return "None"
    ((kind, value),) = bound.items()
    return f"Some({kind}({_render_atom(value)}))"


def hash_fnv1a32(text: str) -> int:
    """Return the 32-bit FNV-1a hash of a text; never 0."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & _U32
    return value or 1


# --- text and hash -------------------------------------------------------------------------------


def render(value: Any, indent: int | None = None) -> str:
    """Return a compiled schema as JSON, compact or indented, with numbers as the reference writes them."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    # Python spells only numbers with exponents otherwise; a text that looks like one does no harm.
    return "".join(_render_parts(value, indent, 0)) if _EXPONENT.search(text) else text


def _render_parts(value: Any, indent: int | None, depth: int) -> Iterable[str]:
    if not isinstance(value, dict | list) or not value:
        yield _render_atom(value)
        return
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    inner = "" if indent is None else "\n" + " " * (indent * (depth + 1))
    colon = ":" if indent is None else ": "
    yield opening
    for number, member in enumerate(value.items() if isinstance(value, dict) else value):
        yield f"{',' if number else ''}{inner}"
        if isinstance(value, dict):
            yield f"{json.dumps(member[0], ensure_ascii=False)}{colon}"
            member = member[1]  # noqa: PLW2901 - the value of the pair
        yield from _render_parts(member, indent, depth + 1)
    yield "" if indent is None else "\n" + " " * (indent * depth)
    yield closing


def _render_atom(value: Any) -> str:
    if not isinstance(value, float):
        return json.dumps(value, ensure_ascii=False)
    text = repr(value)
    if "e" not in text:
        return text
    if _SCIENTIFIC_BELOW <= abs(value) < _SCIENTIFIC_FROM:
        # Python turns to exponents one digit earlier.
        digits, _, exponent = text.partition("e-")
        sign, digits = ("-", digits[1:]) if digits.startswith("-") else ("", digits)
        return f"{sign}0.{'0' * (int(exponent) - 1)}{digits.replace('.', '')}"
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}"


def ir_hash(value: Value) -> str:
    """Return what a compiled schema is recognised by."""
    return f"sha256:{hashlib.sha256(render(value).encode()).hexdigest()}"


def has_same_meaning(one: Any, other: Any) -> bool:
    """Whether two compiled schemas say the same: order, repetition and the spelling of numbers aside."""
    return bool(_normalize(one) == _normalize(other))


def _normalize(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _normalize(member) for key, member in value.items()}
    if isinstance(value, list):
        return {render(_sort_values(member)) for member in value}
    return value


def _sort_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sort_values(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return sorted({render(_sort_values(member)) for member in value})
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


_KINDS_AND_GROUPS: tuple[tuple[TypeKind, str], ...] = (
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
    groups: dict[str, list[Value]] = {group: [] for _, group in _KINDS_AND_GROUPS}
    for kind, owner in accepted.catalog.owners():
        if isinstance(owner, NodeType):
            value = node_value(owner)
        elif isinstance(owner, EdgeType):
            value = edge_value(owner)
        else:
            value = interface_value(owner)
        groups[dict(_KINDS_AND_GROUPS)[kind]].append(_with_numbers(kind, value, identities))
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
        return _read_legacy(value)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is damaged at {error}") from error


def _read_legacy(value: Value) -> tuple[str, Identities]:
    types: dict[TypeRef, int] = {}
    properties: dict[PropertyRef, int] = {}
    bare: dict[str, list[Value]] = {}
    for kind, group in _KINDS_AND_GROUPS:
        bare[group] = []
        for each in value[group]:
            types[kind, each["name"]] = _require_number(each["type_id"])
            for member in each["properties"]:
                properties[kind, each["name"], member["name"]] = _require_number(member["prop_id"])
            members = [_drop_key(member, "prop_id") for member in each["properties"]]
            bare[group].append({**_drop_key(each, "type_id"), "properties": members})
    following = _require_number(value["next_type_id"]), _require_number(value["next_prop_id"])
    return meaning_fingerprint(bare), Identities(types, properties, *following)


def _require_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(repr(value))
    return value


def _drop_key(value: Value, key: str) -> Value:
    return {name: member for name, member in value.items() if name != key}
