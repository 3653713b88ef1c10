"""Syntax tree -> catalog: the rules of the schema language, in their order.

Interfaces are expanded first, then annotations, constraints and finally the types among each other
are checked. All problems of one stage are reported together; a stage with problems is the last, so
that no problem is only the consequence of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import CatalogError, CompileError, ParseError
from omnigraph.lang.schema import schema_ast as ast
from omnigraph.lang.schema.annotations import (
    check_embed_source,
    check_property_annotations,
    check_type_annotations,
)
from omnigraph.lang.schema.catalog import (
    Annotation,
    Cardinality,
    Catalog,
    EdgeType,
    EmbedSource,
    Interface,
    NodeType,
    Property,
    SchemaRenames,
    TypeKind,
)
from omnigraph.lang.schema.catalog_json import compute_fingerprint
from omnigraph.lang.schema.constraints import Constraints, resolve_constraints
from omnigraph.lang.schema.interfaces import MARKS, Member, Members, expand, own_members
from omnigraph.lang.schema.schema_parser import parse_schema
from omnigraph.lang.source import Problems, Source, TooManyProblems, shorten, suggest_name

_NOT_METADATA = (*MARKS, "embed", "rename_from")


def compile_schema(text: str | Source, name: str | None = None) -> Catalog:
    """The catalog of a schema text; raises `ParseError` or `CatalogError` with every problem's place."""
    source = text if isinstance(text, Source) else Source(text, name)
    return build_catalog(parse_schema(source), source)


def build_catalog(file: ast.SchemaFile, source: Source) -> Catalog:
    """The catalog of a parsed schema file."""
    return check_schema(file, source)[0]


def check_schema(file: ast.SchemaFile, source: Source) -> tuple[Catalog, list[ExpandedType]]:
    """Return the catalog of a parsed schema file, and its declarations with what interfaces add to them."""
    with _run_stage(source, ParseError) as problems:
        types = _expand_types(file, problems)
    with _run_stage(source, ParseError) as problems:
        _check_annotations(types, problems)
    with _run_stage(source, ParseError) as problems:
        constraints = _check_constraints(types, problems)
    with _run_stage(source, CatalogError) as problems:
        _check_types(file, problems)
    return _assemble_catalog(types, constraints, _collect_renames(file)), types


@contextmanager
def _run_stage(source: Source, kind: type[CompileError]) -> Iterator[Problems]:
    problems = Problems(source, kind)
    try:
        yield problems
    except TooManyProblems:
        problems.raise_if_any(truncated=True)
    problems.raise_if_any()


@dataclass(frozen=True, slots=True)
class ExpandedType:
    """A declaration with all its properties, those of its interfaces included."""

    kind: TypeKind
    declared: ast.Declaration
    members: Members

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.declared.name.text


def _expand_types(file: ast.SchemaFile, problems: Problems) -> list[ExpandedType]:
    interfaces: dict[str, ast.Interface] = {}
    for found in file.interfaces:
        interfaces.setdefault(found.name.text, found)
    types: list[ExpandedType] = []
    for declared in file.declarations:
        if isinstance(declared, ast.Node):
            types.append(ExpandedType("node", declared, expand(declared, interfaces, problems)))
        else:
            kind: TypeKind = "edge" if isinstance(declared, ast.Edge) else "interface"
            types.append(ExpandedType(kind, declared, own_members(declared.properties)))
    return types


def _check_annotations(types: Iterable[ExpandedType], problems: Problems) -> None:
    for each in types:
        if not isinstance(each.declared, ast.Interface):
            check_type_annotations(each.kind, each.name, each.declared.annotations, problems)
        for declared in each.declared.properties:
            check_property_annotations(each.kind, each.name, declared, each.members, problems)
        for member in each.members.values():
            if member.inherited:
                check_embed_source(each.name, member, each.members, problems)


def _check_constraints(
    types: Iterable[ExpandedType], problems: Problems
) -> dict[tuple[TypeKind, str], Constraints]:
    return {
        (each.kind, each.name): resolve_constraints(
            each.kind, each.name, each.members, each.declared.constraints, problems
        )
        for each in types
        if not isinstance(each.declared, ast.Interface)
    }


def _check_types(file: ast.SchemaFile, problems: Problems) -> None:
    """What no declaration can know alone: duplicates, end points, edge names that differ in case only."""
    _refuse_duplicates(file.interfaces, "duplicate interface name in schema shape: {}", problems)
    _refuse_duplicates(file.nodes, "duplicate node type: {}", problems)
    _refuse_duplicates(file.edges, "duplicate edge type: {}", problems)
    for declared in file.declarations:
        _refuse_duplicate_properties(declared, problems)
    nodes = {found.name.text for found in file.nodes}
    folded: dict[str, str] = {}
    for edge in file.edges:
        for side, end in (("source", edge.source), ("target", edge.target)):
            if end.text not in nodes:
                reason = f"edge {edge.name.text} references unknown {side} type: {end.text}"
                problems.add(reason, end.at, help=_suggest_node_type(end.text, nodes))
        other = folded.setdefault(edge.name.text.lower(), edge.name.text)
        if other != edge.name.text:
            problems.add(
                f"edge name collision after case folding: '{edge.name.text}' conflicts with '{other}'",
                edge.name.at,
            )


def _suggest_node_type(name: str, known: set[str]) -> str:
    hint = suggest_name(name, known)
    if hint is not None and hint.startswith("did you mean"):
        return hint
    return f"declare it: `node {shorten(name)} {{ ... }}`"


def _refuse_duplicates(declared: Iterable[ast.Declaration], message: str, problems: Problems) -> None:
    seen: set[str] = set()
    for found in declared:
        if found.name.text in seen:
            problems.add(message.format(found.name.text), found.name.at)
        seen.add(found.name.text)


def _refuse_duplicate_properties(declared: ast.Declaration, problems: Problems) -> None:
    seen: set[str] = set()
    for found in declared.properties:
        if found.name.text in seen:
            problems.add(f"duplicate property '{declared.name.text}.{found.name.text}'", found.name.at)
        seen.add(found.name.text)


# --- assembly ------------------------------------------------------------------------------------


def _assemble_catalog(
    types: Iterable[ExpandedType],
    constraints: Mapping[tuple[TypeKind, str], Constraints],
    renames: SchemaRenames,
) -> Catalog:
    interfaces: dict[str, Interface] = {}
    nodes: dict[str, NodeType] = {}
    edges: dict[str, EdgeType] = {}
    for each in types:
        properties = {name: _build_property(member) for name, member in each.members.items()}
        if isinstance(each.declared, ast.Node):
            nodes[each.name] = _build_node(each.declared, properties, constraints["node", each.name])
        elif isinstance(each.declared, ast.Edge):
            edges[each.name] = _build_edge(each.declared, properties, constraints["edge", each.name])
        else:
            interfaces[each.name] = Interface(each.name, properties)
    return Catalog(interfaces, nodes, edges, compute_fingerprint(interfaces, nodes, edges), renames)


def _build_property(member: Member) -> Property:
    declared = member.declared
    return Property(
        name=declared.name.text,
        type=declared.type,
        annotations=_collect_metadata(declared.annotations),
        embed=_find_embed(declared.annotations),
        interfaces=member.interfaces,
        inherited=member.inherited,
        marks=member.marks,
    )


def _collect_metadata(annotations: Iterable[ast.Annotation]) -> tuple[Annotation, ...]:
    return tuple(
        Annotation(
            found.name,
            found.value.text if found.value else None,
            tuple((option, value.text) for option, value in found.options),
        )
        for found in annotations
        if found.name not in _NOT_METADATA
    )


def _find_embed(annotations: Iterable[ast.Annotation]) -> EmbedSource | None:
    for found in annotations:
        if found.name == "embed" and found.value:
            model = next((value.text for option, value in found.options if option == "model"), None)
            return EmbedSource(found.value.text, model)
    return None


def _build_node(declared: ast.Node, properties: Mapping[str, Property], constraints: Constraints) -> NodeType:
    return NodeType(
        name=declared.name.text,
        properties=properties,
        key=constraints.key,
        uniques=constraints.uniques,
        indexes=constraints.indexes,
        ranges=constraints.ranges,
        checks=constraints.checks,
        implements=tuple(dict.fromkeys(name.text for name in declared.implements)),
        annotations=_collect_metadata(declared.annotations),
    )


def _build_edge(declared: ast.Edge, properties: Mapping[str, Property], constraints: Constraints) -> EdgeType:
    card = declared.card
    return EdgeType(
        name=declared.name.text,
        source=declared.source.text,
        target=declared.target.text,
        properties=properties,
        cardinality=Cardinality(card.minimum, card.maximum) if card else Cardinality(),
        uniques=constraints.uniques,
        indexes=constraints.indexes,
        annotations=_collect_metadata(declared.annotations),
        key=constraints.key,
    )


def _collect_renames(file: ast.SchemaFile) -> SchemaRenames:
    types: dict[tuple[TypeKind, str], str] = {}
    properties: dict[tuple[TypeKind, str, str], str] = {}
    for declared in file.declarations:
        kind: TypeKind = (
            "interface"
            if isinstance(declared, ast.Interface)
            else "node"
            if isinstance(declared, ast.Node)
            else "edge"
        )
        if not isinstance(declared, ast.Interface) and (old := _old_name(declared.annotations)):
            types[kind, declared.name.text] = old
        for found in declared.properties:
            if old := _old_name(found.annotations):
                properties[kind, declared.name.text, found.name.text] = old
    return SchemaRenames(types, properties)


def _old_name(annotations: Iterable[ast.Annotation]) -> str | None:
    return next((each.value.text for each in annotations if each.name == "rename_from" and each.value), None)
