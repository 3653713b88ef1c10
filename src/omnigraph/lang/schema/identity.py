"""Stable numbers for types and properties: what stays the same thing when its name changes.

Each graph has its own numbers. A new type or property takes the next one, a renamed one keeps its
own, and the number of a dropped one is never given again: a name that comes back is a new thing.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import InternalError, SchemaIdentityError
from omnigraph.lang.schema.catalog import Catalog, EdgeType, Interface, NodeType, Property, TypeKind

TypeRef = tuple[TypeKind, str]
PropertyRef = tuple[TypeKind, str, str]


@dataclass(frozen=True, slots=True)
class Identities:
    """The numbers of the types and properties of one schema, and the next ones to give."""

    types: Mapping[TypeRef, int]
    properties: Mapping[PropertyRef, int]
    next_type: int
    next_property: int

    def by_owner(self) -> dict[TypeRef, dict[str, int]]:
        """Return the numbers of properties by type, for every type."""
        found: dict[TypeRef, dict[str, int]] = {ref: {} for ref in self.types}
        for (kind, owner, name), number in self.properties.items():
            found.setdefault((kind, owner), {})[name] = number
        return found

    def in_order(self, kind: TypeKind, owner: str, names: Iterable[str]) -> tuple[str, ...]:
        """Properties of a type in the order of their numbers: the order of values in a composite id."""
        return tuple(sorted(names, key=lambda name: self.properties[kind, owner, name]))


@dataclass(frozen=True, slots=True)
class AcceptedSchema:
    """A schema a graph works with: what it says, and the numbers of what it declares."""

    catalog: Catalog
    identities: Identities | None
    """None where they were not read: only composite keys and changes of the schema need them."""

    @property
    def known_identities(self) -> Identities:
        """The identities, for code that cannot do without."""
        if self.identities is None:
            raise InternalError("the identities of the schema were not read")
        return self.identities


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a desired schema matches the accepted one."""

    identities: Identities
    type_origins: Mapping[TypeRef, str]
    """The accepted name of each desired type that is not new."""
    property_origins: Mapping[PropertyRef, str]
    """The accepted name of each desired property that is not new."""
    ignored_hints: tuple[str, ...]
    """One sentence for each `@rename_from` without effect."""


def first_identities(catalog: Catalog) -> Identities:
    """The numbers of a new graph; rename hints have no meaning here."""
    nothing = Identities({}, {}, 1, 1)
    return _assign_numbers(catalog, nothing, {}, {})


def resolve(accepted: AcceptedSchema, desired: Catalog) -> Resolution:
    """Match a desired schema to the accepted one, or raise `SchemaIdentityError`."""
    ignored: list[str] = []
    types = _match_types(accepted.catalog, desired, ignored)
    properties = _match_properties(accepted.catalog, desired, types, ignored)
    return Resolution(
        _assign_numbers(desired, accepted.known_identities, types, properties),
        types,
        properties,
        tuple(ignored),
    )


def follow(known: Identities, desired: Catalog) -> Identities:
    """Return the identities of a schema that came after one of which only the identities are known.

    What `resolve` accepts gets the numbers that it gives. Nothing is refused: the schema holds already, and
    a hint that leads nowhere means a new type or property.
    """
    wanted = {(kind, owner.name) for kind, owner in desired.owners()}
    types: dict[TypeRef, str] = {ref: ref[1] for ref in wanted if ref in known.types}
    consumed, members = set(types), known.by_owner()
    properties: dict[PropertyRef, str] = {}
    for kind, owner in desired.owners():
        hint = desired.renames.types.get((kind, owner.name))
        if (kind, owner.name) not in types and hint is not None:
            old = (kind, hint)
            if old in known.types and old not in consumed:
                consumed.add(old)
                types[kind, owner.name] = hint
        if (kind, owner.name) in types:
            before = set(members[kind, types[kind, owner.name]])
            for name, origin in _follow_owner(kind, owner, before, desired):
                properties[kind, owner.name, name] = origin
    return _assign_numbers(desired, known, types, properties)


def _follow_owner(
    kind: TypeKind, owner: Interface | NodeType | EdgeType, before: set[str], desired: Catalog
) -> Iterator[tuple[str, str]]:
    consumed = before & set(owner.properties)
    yield from ((name, name) for name in consumed)
    for name in sorted(set(owner.properties) - before):
        own = desired.renames.properties.get((kind, owner.name, name))
        hint = own or _inherited_hint(owner.properties[name], before, desired)
        if hint is not None and hint in before - consumed:
            consumed.add(hint)
            yield name, hint


def _assign_numbers(
    catalog: Catalog,
    before: Identities,
    type_origins: Mapping[TypeRef, str],
    property_origins: Mapping[PropertyRef, str],
) -> Identities:
    types: dict[TypeRef, int] = {}
    properties: dict[PropertyRef, int] = {}
    next_type, next_property = before.next_type, before.next_property
    for kind, owner in catalog.owners():
        old_owner = type_origins.get((kind, owner.name))
        if old_owner is None:
            types[kind, owner.name], next_type = next_type, next_type + 1
        else:
            types[kind, owner.name] = before.types[kind, old_owner]
        for name in sorted(owner.properties):
            old = property_origins.get((kind, owner.name, name))
            if old is None or old_owner is None:
                properties[kind, owner.name, name], next_property = next_property, next_property + 1
            else:
                properties[kind, owner.name, name] = before.properties[kind, old_owner, old]
    return Identities(types, properties, next_type, next_property)


# --- types -----------------------------------------------------------------------------------------


def _match_types(accepted: Catalog, desired: Catalog, ignored: list[str]) -> dict[TypeRef, str]:
    known = {(kind, owner.name) for kind, owner in accepted.owners()}
    wanted = [(kind, owner.name) for kind, owner in desired.owners()]
    origins: dict[TypeRef, str] = {ref: ref[1] for ref in wanted if ref in known}
    consumed = set(origins)
    for kind, name in wanted:
        hint = desired.renames.types.get((kind, name))
        if hint is None:
            continue
        if (kind, name) in known:
            ignored.append(_describe_ignored(hint, f"{kind} '{name}'", kind))
            continue
        _refuse_unknown_type(kind, name, hint, known)
        if (kind, hint) in consumed:
            raise _identity_error(
                f"accepted {kind} '{hint}' is consumed by more than one desired declaration", f"{kind}:{name}"
            )
        consumed.add((kind, hint))
        origins[kind, name] = hint
    return origins


def _describe_ignored(hint: str, what: str, kind: str) -> str:
    return f'@rename_from("{hint}") on {what} has no effect: an accepted {kind} has the new name already'


def _refuse_unknown_type(kind: TypeKind, name: str, hint: str, known: set[TypeRef]) -> None:
    if (kind, hint) in known:
        return
    declares = f"{kind} '{name}' declares @rename_from(\"{hint}\")"
    if any(other == hint for _, other in known):
        raise _identity_error(
            f"{kind} '{name}' cannot rename accepted '{hint}' across declaration kinds", f"{kind}:{name}"
        )
    raise _identity_error(f"{declares} but no accepted declaration has that name", f"{kind}:{name}")


def _identity_error(reason: str, entity: str) -> SchemaIdentityError:
    return SchemaIdentityError(reason, entity=entity)


# --- properties ------------------------------------------------------------------------------------


def _match_properties(
    accepted: Catalog, desired: Catalog, types: Mapping[TypeRef, str], ignored: list[str]
) -> dict[PropertyRef, str]:
    before = {(kind, owner.name): owner for kind, owner in accepted.owners()}
    origins: dict[PropertyRef, str] = {}
    for kind, owner in desired.owners():
        old_name = types.get((kind, owner.name))
        if old_name is None:
            _refuse_imports(kind, owner, desired)
            continue
        old = before[kind, old_name]
        for name, origin in _match_owner(kind, owner, old, accepted, desired, ignored):
            origins[kind, owner.name, name] = origin
    return origins


def _refuse_imports(kind: TypeKind, owner: Interface | NodeType | EdgeType, desired: Catalog) -> None:
    for name in sorted(owner.properties):
        if hint := desired.renames.properties.get((kind, owner.name, name)):
            raise _identity_error(
                f"new owner '{kind}:{owner.name}' cannot import property identity "
                f'with @rename_from("{hint}")',
                f"{kind}:{owner.name}.{name}",
            )


def _match_owner(
    kind: TypeKind,
    owner: Interface | NodeType | EdgeType,
    old: Interface | NodeType | EdgeType,
    accepted: Catalog,
    desired: Catalog,
    ignored: list[str],
) -> Iterator[tuple[str, str]]:
    consumed = {name for name in owner.properties if name in old.properties}
    yield from ((name, name) for name in consumed)
    for name in sorted(owner.properties):
        path = f"{owner.name}.{name}"
        own_hint = desired.renames.properties.get((kind, owner.name, name))
        if name in old.properties:
            if own_hint:
                ignored.append(_describe_ignored(own_hint, f"property '{path}'", "property"))
            continue
        hint = own_hint or _inherited_hint(owner.properties[name], old.properties, desired)
        if hint is None:
            continue
        if hint not in old.properties:
            raise _identity_error(_unknown_property(path, hint, accepted), f"{kind}:{path}")
        if hint in consumed:
            reason = f"accepted property '{old.name}.{hint}' is consumed by more than one desired declaration"
            raise _identity_error(reason, f"{kind}:{path}")
        consumed.add(hint)
        yield name, hint


def _inherited_hint(found: Property, old: Container[str], desired: Catalog) -> str | None:
    """The hint of the interface a property comes from, where the owner had the old name."""
    if not found.inherited:
        return None
    hints = (desired.renames.properties.get(("interface", each, found.name)) for each in found.interfaces)
    return next((hint for hint in hints if hint is not None and hint in old), None)


def _unknown_property(path: str, hint: str, accepted: Catalog) -> str:
    elsewhere = any(hint in owner.properties for _, owner in accepted.owners())
    reason = (
        "property moves across stable owners are not supported"
        if elsewhere
        else "no accepted property with that name exists under the stable owner"
    )
    return f"property '{path}' declares @rename_from(\"{hint}\"): {reason}"


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
    return json.dumps({**value, "checksum": _compute_checksum(value)}, indent=2, ensure_ascii=False)


def _compute_checksum(value: dict[str, Any]) -> str:
    content = {name: member for name, member in value.items() if name != "checksum"}
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def parse_identities(text: str) -> tuple[Identities, str]:
    """Return the identities and the hash of the compiled schema they are of; `ValueError` when damaged."""
    try:
        return _read_identities(json.loads(text))
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is damaged at {error}") from error


def _read_identities(value: Any) -> tuple[Identities, str]:
    if value["format_version"] != _FORMAT:
        raise ValueError(f"it has format {value['format_version']}, and this release reads {_FORMAT}")
    if value["checksum"] != _compute_checksum(value):
        raise ValueError("its content is not what was written")
    types: dict[TypeRef, int] = {}
    properties: dict[PropertyRef, int] = {}
    for each in value["types"]:
        kind = _KINDS[each["kind"]]
        types[kind, str(each["name"])] = _require_number(each["type_id"])
        for member, number in each["properties"].items():
            properties[kind, str(each["name"]), str(member)] = _require_number(number)
    found = Identities(
        types, properties, _require_number(value["next_type_id"]), _require_number(value["next_prop_id"])
    )
    _check_numbers(found)
    return found, str(value["schema_ir_hash"])


def _require_number(value: Any) -> int:
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
