"""The accepted schema as the JSON value a graph stores, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NoReturn

from omnigraph.errors import CorruptGraph
from omnigraph.lang.schema.catalog import (
    Annotation,
    Cardinality,
    Catalog,
    Check,
    EdgeType,
    Embed,
    Index,
    Interface,
    NodeType,
    Property,
    Range,
    TypeKind,
    Unique,
)
from omnigraph.lang.schema.identity import AcceptedSchema, Identities, PropertyRef, TypeRef
from omnigraph.lang.schema.shape import Value, compact, edge_value, fingerprint, interface_value, node_value
from omnigraph.lang.types import MAX_VECTOR_DIMENSION, SCALARS, Scalar, Type

IR_VERSION = 1


def to_json(accepted: AcceptedSchema) -> Value:
    """The stored form: types sorted by name, every type and property with its number."""
    catalog, identities = accepted.catalog, accepted.identities
    groups: dict[str, list[Value]] = {"interface": [], "node": [], "edge": []}
    for kind, owner in catalog.owners():
        if isinstance(owner, NodeType):
            value = node_value(owner)
        elif isinstance(owner, EdgeType):
            value = edge_value(owner)
        else:
            value = interface_value(owner)
        groups[kind].append(_numbered(kind, value, identities))
    return {
        "ir_version": IR_VERSION,
        "interfaces": groups["interface"],
        "nodes": groups["node"],
        "edges": groups["edge"],
        "next_type_id": identities.next_type,
        "next_prop_id": identities.next_property,
    }


def _numbered(kind: TypeKind, value: Value, identities: Identities) -> Value:
    owner = value["name"]
    properties = [
        {**each, "prop_id": identities.properties[kind, owner, each["name"]]} for each in value["properties"]
    ]
    return {**value, "type_id": identities.types[kind, owner], "properties": properties}


def ir_hash(value: Value) -> str:
    """The digest of a stored form."""
    return f"sha256:{hashlib.sha256(compact(value).encode()).hexdigest()}"


def from_json(value: object) -> AcceptedSchema:
    """The accepted schema of a stored form; anything else is `CorruptGraph`."""
    root = _object(value, "the schema")
    version = _whole(root, "ir_version", "the schema")
    if version != IR_VERSION:
        _bad(f"ir_version is {version}, this version reads {IR_VERSION}")
    types: dict[TypeRef, int] = {}
    numbers: dict[PropertyRef, int] = {}
    interfaces = {
        found.name: found
        for found in (_interface(each, types, numbers) for each in _array(root, "interfaces", "the schema"))
    }
    nodes = {
        found.name: found
        for found in (_node(each, types, numbers) for each in _array(root, "nodes", "the schema"))
    }
    edges = {
        found.name: found
        for found in (_edge(each, types, numbers) for each in _array(root, "edges", "the schema"))
    }
    identities = Identities(
        types, numbers, _whole(root, "next_type_id", "the schema"), _whole(root, "next_prop_id", "the schema")
    )
    _check_numbers(identities)
    _check_references(interfaces, nodes, edges)
    return AcceptedSchema(
        Catalog(interfaces, nodes, edges, fingerprint(interfaces, nodes, edges)), identities
    )


# --- plain values ----------------------------------------------------------------------------------


def _bad(reason: str) -> NoReturn:
    raise CorruptGraph(f"invalid accepted SchemaIR: {reason}", object_id="schema")


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _bad(f"{where} is not an object")
    return value


def _field(value: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in value:
        _bad(f"{where} has no {key}")
    return value[key]


def _array(value: Mapping[str, Any], key: str, where: str) -> list[Any]:
    found = _field(value, key, where)
    if not isinstance(found, list):
        _bad(f"{key} of {where} is not an array")
    return found


def _whole(value: Mapping[str, Any], key: str, where: str) -> int:
    found = _field(value, key, where)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        _bad(f"{key} of {where} is not a whole number")
    return found


def _flag(value: Mapping[str, Any], key: str, where: str) -> bool:
    found = _field(value, key, where)
    if not isinstance(found, bool):
        _bad(f"{key} of {where} is not true or false")
    return found


def _text(value: Mapping[str, Any], key: str, where: str) -> str:
    found = _field(value, key, where)
    if not isinstance(found, str):
        _bad(f"{key} of {where} is not a string")
    return found


def _texts(value: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    found = _array(value, key, where)
    if not all(isinstance(each, str) for each in found):
        _bad(f"{key} of {where} holds something else than strings")
    return tuple(found)


# --- types and properties --------------------------------------------------------------------------


def _owner(
    kind: TypeKind, value: object, types: dict[TypeRef, int], numbers: dict[PropertyRef, int]
) -> tuple[Mapping[str, Any], str, dict[str, Property]]:
    """The fields every type has: its name, number and properties."""
    found = _object(value, f"an entry of {kind}s")
    name = _text(found, "name", f"an entry of {kind}s")
    where = f"{kind} {name}"
    if (kind, name) in types:
        _bad(f"{where} is there twice")
    types[kind, name] = _whole(found, "type_id", where)
    properties: dict[str, Property] = {}
    for each in _array(found, "properties", where):
        declared = _object(each, f"a property of {where}")
        member = _property(declared, where)
        if member.name in properties:
            _bad(f"property {name}.{member.name} is there twice")
        properties[member.name] = member
        numbers[kind, name, member.name] = _whole(declared, "prop_id", f"property {name}.{member.name}")
    return found, where, properties


def _interface(value: object, types: dict[TypeRef, int], numbers: dict[PropertyRef, int]) -> Interface:
    found, _, properties = _owner("interface", value, types, numbers)
    return Interface(found["name"], properties)


def _node(value: object, types: dict[TypeRef, int], numbers: dict[PropertyRef, int]) -> NodeType:
    found, where, properties = _owner("node", value, types, numbers)
    rules = _rules(found, where)
    return NodeType(
        name=found["name"],
        properties=properties,
        key=next((_columns(each, where) for each in rules["Key"]), ()),
        uniques=tuple(Unique(_columns(each, where)) for each in rules["Unique"]),
        indexes=tuple(Index(_columns(each, where)) for each in rules["Index"]),
        ranges=tuple(_range(each, where) for each in rules["Range"]),
        checks=tuple(_check(each, where) for each in rules["Check"]),
        implements=_texts(found, "implements", where),
        annotations=_annotations(found, where),
    )


def _edge(value: object, types: dict[TypeRef, int], numbers: dict[PropertyRef, int]) -> EdgeType:
    found, where, properties = _owner("edge", value, types, numbers)
    rules = _rules(found, where)
    if rules["Key"] or rules["Range"] or rules["Check"]:
        _bad(f"{where} has a constraint only nodes can have")
    card = _object(_field(found, "cardinality", where), f"cardinality of {where}")
    maximum = _field(card, "max", where)
    return EdgeType(
        name=found["name"],
        source=_text(found, "from", where),
        target=_text(found, "to", where),
        properties=properties,
        cardinality=Cardinality(
            _whole(card, "min", where), None if maximum is None else _whole(card, "max", where)
        ),
        uniques=tuple(Unique(_columns(each, where)) for each in rules["Unique"]),
        indexes=tuple(Index(_columns(each, where)) for each in rules["Index"]),
        annotations=_annotations(found, where),
    )


def _property(found: Mapping[str, Any], owner: str) -> Property:
    name = _text(found, "name", f"a property of {owner}")
    where = f"property {name} of {owner}"
    embed = _field(found, "embed", where)
    return Property(
        name=name,
        type=_type(_object(_field(found, "type", where), f"type of {where}"), where),
        annotations=_annotations(found, where),
        embed=None if embed is None else _embed(_object(embed, f"embed of {where}"), where),
        interfaces=_texts(found, "interfaces", where),
        inherited=_flag(found, "inherited", where),
        marks=_texts(found, "marks", where),
    )


def _type(found: Mapping[str, Any], where: str) -> Type:
    scalar = _field(found, "scalar", where)
    values = _field(found, "enum_values", where)
    nullable, is_list = _flag(found, "nullable", where), _flag(found, "list", where)
    if isinstance(scalar, Mapping) and set(scalar) == {"Vector"}:
        dimension = _whole(scalar, "Vector", where)
        if not 1 <= dimension <= MAX_VECTOR_DIMENSION or is_list or values is not None:
            _bad(f"type of {where} is not possible")
        return Type(Scalar.VECTOR, nullable=nullable, dimension=dimension)
    if not isinstance(scalar, str) or scalar not in SCALARS:
        _bad(f"scalar of {where} is not known")
    enum_values = () if values is None else _texts(found, "enum_values", where)
    if values is not None and (not enum_values or is_list or SCALARS[scalar] is not Scalar.STRING):
        _bad(f"type of {where} is not possible")
    return Type(
        SCALARS[scalar], nullable=nullable, is_list=is_list, enum_values=tuple(sorted(set(enum_values)))
    )


def _embed(found: Mapping[str, Any], where: str) -> Embed:
    model = _field(found, "model", where)
    return Embed(_text(found, "source", where), None if model is None else _text(found, "model", where))


def _annotations(found: Mapping[str, Any], where: str) -> tuple[Annotation, ...]:
    return tuple(
        _annotation(_object(each, f"an annotation of {where}"), where)
        for each in _array(found, "annotations", where)
    )


def _annotation(found: Mapping[str, Any], where: str) -> Annotation:
    name = _text(found, "name", f"an annotation of {where}")
    value = _text(found, "value", f"@{name} of {where}") if "value" in found else None
    arguments = []
    for pair in _array(found, "arguments", where) if "arguments" in found else ():
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)):
            _bad(f"arguments of @{name} of {where} are not pairs of strings")
        arguments.append((pair[0], pair[1]))
    return Annotation(name, value, tuple(arguments))


# --- constraints -----------------------------------------------------------------------------------


def _rules(found: Mapping[str, Any], where: str) -> dict[str, list[Any]]:
    """The constraints of a type by kind."""
    rules: dict[str, list[Any]] = {"Key": [], "Unique": [], "Index": [], "Range": [], "Check": []}
    for each in _array(found, "constraints", where):
        if not isinstance(each, Mapping) or len(each) != 1 or next(iter(each)) not in rules:
            _bad(f"a constraint of {where} is not known")
        kind, value = next(iter(each.items()))
        rules[kind].append(value)
    if len(rules["Key"]) > 1:
        _bad(f"{where} has more than one key")
    return rules


def _columns(value: object, where: str) -> tuple[str, ...]:
    columns = _texts({"columns": value}, "columns", where)
    if not columns:
        _bad(f"a constraint of {where} names no column")
    return columns


def _range(value: object, where: str) -> Range:
    found = _object(value, f"a range of {where}")
    return Range(_text(found, "column", where), _bound(found, "min", where), _bound(found, "max", where))


def _bound(found: Mapping[str, Any], key: str, where: str) -> int | float | None:
    value = _field(found, key, f"a range of {where}")
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        _bad(f"{key} of a range of {where} is not a number")
    return value


def _check(value: object, where: str) -> Check:
    found = _object(value, f"a check of {where}")
    return Check(_text(found, "column", where), _text(found, "pattern", where))


# --- the whole -------------------------------------------------------------------------------------


def _check_numbers(identities: Identities) -> None:
    for what, numbers, following in (
        ("type_id", identities.types.values(), identities.next_type),
        ("prop_id", identities.properties.values(), identities.next_property),
    ):
        if len(set(numbers)) != len(numbers):
            _bad(f"a {what} is used twice")
        if any(not 0 < number < following for number in numbers):
            _bad(f"a {what} is not below the next one to give")


def _check_references(
    interfaces: Mapping[str, Interface], nodes: Mapping[str, NodeType], edges: Mapping[str, EdgeType]
) -> None:
    for node in nodes.values():
        if unknown := set(node.implements) - set(interfaces):
            _bad(f"node {node.name} implements unknown interface '{min(unknown)}'")
        columns = {*node.key, *(r.column for r in node.ranges), *(c.column for c in node.checks)}
        _check_columns(f"node {node.name}", node, columns, set(node.properties))
    for edge in edges.values():
        if unknown := {edge.source, edge.target} - set(nodes):
            _bad(f"edge {edge.name} references unknown type '{min(unknown)}'")
        _check_columns(f"edge {edge.name}", edge, set(), {*edge.properties, "src", "dst"})


def _check_columns(where: str, owner: NodeType | EdgeType, columns: set[str], known: set[str]) -> None:
    named = [each.columns for each in owner.uniques] + [each.columns for each in owner.indexes]
    sources = [each.embed.source for each in owner.properties.values() if each.embed]
    if unknown := columns.union(sources, *named) - known:
        _bad(f"a constraint of {where} references unknown property '{min(unknown)}'")
