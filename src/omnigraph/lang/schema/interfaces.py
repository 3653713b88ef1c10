"""What the interfaces of a node type add to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.schema import schema_ast as ast
from omnigraph.lang.source import Problems

MARKS = ("key", "unique", "index")
"""Constraints that may be written on a property without arguments."""


@dataclass(frozen=True, slots=True)
class Member:
    """A property of a type after expansion, with where it comes from."""

    declared: ast.Property
    inherited: bool = False
    interfaces: tuple[str, ...] = ()

    @property
    def marks(self) -> tuple[str, ...]:
        """The property-level constraints, sorted."""
        return tuple(sorted({found.name for found in self.declared.annotations if found.name in MARKS}))


Members = Mapping[str, Member]


def own_members(properties: Iterable[ast.Property]) -> dict[str, Member]:
    """The declared properties by name; of duplicates the first."""
    members: dict[str, Member] = {}
    for declared in properties:
        members.setdefault(declared.name.text, Member(declared))
    return members


def expand(node: ast.Node, interfaces: Mapping[str, ast.Interface], problems: Problems) -> Members:
    """The properties of a node type, those that only an interface declares last."""
    members = own_members(node.properties)
    for name in {found.text: found for found in node.implements}.values():
        interface = interfaces.get(name.text)
        if interface is None:
            problems.add(f"node {node.name.text} implements unknown interface '{name.text}'", name.at)
            continue
        for offered in own_members(interface.properties).values():
            _add_offered(node, members, interface.name.text, offered.declared, problems)
    return members


def _add_offered(
    node: ast.Node, members: dict[str, Member], interface: str, offered: ast.Property, problems: Problems
) -> None:
    name = offered.name.text
    member = members.get(name)
    if member is None:
        members[name] = Member(offered, inherited=True, interfaces=(interface,))
        return
    if not member.inherited and member.declared.type != offered.type:
        problems.add(
            f"node {node.name.text} property '{name}' has type {member.declared.type} "
            f"but interface {interface} declares it as {offered.type}",
            member.declared.at,
        )
    elif member.inherited and not _is_compatible(member.declared, offered):
        problems.add(
            f"interfaces contributing '{node.name.text}.{name}' have incompatible property semantics",
            node.name.at,
            help=f"declare '{name}' in the node, or make {member.interfaces[0]} and {interface} agree",
        )
    members[name] = replace(member, interfaces=tuple(sorted((*member.interfaces, interface))))


def _is_compatible(one: ast.Property, other: ast.Property) -> bool:
    return one.type == other.type and _lasting_annotations(one) == _lasting_annotations(other)


def _lasting_annotations(declared: ast.Property) -> frozenset[ast.Annotation]:
    return frozenset(found for found in declared.annotations if found.name != "rename_from")
