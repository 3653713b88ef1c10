"""What a checked schema says: types, properties and constraints, ready to be looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import Literal, get_args

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.types import Scalar, ValueType

TypeKind = Literal["interface", "node", "edge"]

Metric = Literal["l2", "cosine", "dot"]
"""How the vectors of a property are compared."""

Granularity = Literal["row", "property"]
"""What contradicts in a merge: two changes of one entity, or only of one property of it."""

GRANULARITIES: tuple[Granularity, ...] = ("row", "property")
"""The names that `@merge` takes."""

METRICS: Mapping[str, Metric] = {"l2": "l2", "euclidean": "l2", "cosine": "cosine", "dot": "dot"}
"""The names that `@metric` takes."""

Language = Literal[
    "english",
    "arabic",
    "danish",
    "dutch",
    "finnish",
    "french",
    "german",
    "greek",
    "hungarian",
    "italian",
    "norwegian",
    "portuguese",
    "romanian",
    "russian",
    "spanish",
    "swedish",
    "tamil",
    "turkish",
    "cjk",
    "plain",
]
"""How the texts of a property become tokens: by the stems and stop words of a language, cut into words by
dictionaries (`cjk`), or word by word as they are (`plain`)."""

LANGUAGES: Mapping[str, Language] = {
    **{name: name for name in get_args(Language)},
    "chinese": "cjk",
    "japanese": "cjk",
    "korean": "cjk",
    "thai": "cjk",
}
"""The names that `@text` takes."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """Metadata on a type or property; the value is kept as the text it was written with."""

    name: str
    value: str | None = None
    arguments: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EmbedSource:
    """Where the text behind a vector property comes from."""

    source: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Property:
    """A declared property of a type."""

    name: str
    type: ValueType
    annotations: tuple[Annotation, ...] = ()
    embed: EmbedSource | None = None
    interfaces: tuple[str, ...] = ()
    """The implemented interfaces that declare this property too, sorted."""
    inherited: bool = False
    """True when only an interface declares it."""
    marks: tuple[str, ...] = ()
    """Which of `key`, `unique` and `index` are written on the property instead of in the body, sorted."""

    @property
    def default(self) -> str | None:
        """The text of its `@default`: what rows get that exist before it does, or before it is required."""
        return next((each.value for each in self.annotations if each.name == "default"), None)

    @property
    def metric(self) -> Metric:
        """How its vectors are compared: by its `@metric`, else by the Euclidean distance."""
        if self.type.scalar is not Scalar.VECTOR:
            return "l2"
        name = next((each.value for each in self.annotations if each.name == "metric"), None)
        return METRICS.get(name or "", "l2")

    @property
    def language(self) -> Language:
        """How its texts become tokens: by its `@text`, else as English."""
        if not self.type.is_text:
            return "english"
        name = next((each.value for each in self.annotations if each.name == "text"), None)
        return LANGUAGES.get(name or "", "english")


@dataclass(frozen=True, slots=True)
class UniqueRule:
    """The tuple of these columns is unique among rows without a null in it; columns are sorted."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PropertyIndex:
    """A wish for faster reads; never changes a result."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RangeRule:
    """An inclusive numeric range; a missing bound is open."""

    column: str
    minimum: float | int | None
    maximum: float | int | None


@dataclass(frozen=True, slots=True)
class CheckRule:
    """A regular expression that must match somewhere in the text."""

    column: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Cardinality:
    """How many edges of a type one source node may have."""

    minimum: int = 0
    maximum: int | None = None


@dataclass(frozen=True, slots=True)
class Interface:
    """A template of properties; it has no data."""

    name: str
    properties: Mapping[str, Property]


@dataclass(frozen=True, slots=True)
class NodeType:
    """A node type with everything its interfaces added."""

    name: str
    properties: Mapping[str, Property]
    """By name, in declaration order, inherited ones last."""
    key: tuple[str, ...] = ()
    """Key columns as declared; empty when ids are generated."""
    uniques: tuple[UniqueRule, ...] = ()
    indexes: tuple[PropertyIndex, ...] = ()
    ranges: tuple[RangeRule, ...] = ()
    checks: tuple[CheckRule, ...] = ()
    implements: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()

    @property
    def merge(self) -> Literal["row", "property"] | None:
        """How its entities are merged, by its `@merge`; None where it has none."""
        return find_granularity(self.annotations)


@dataclass(frozen=True, slots=True)
class EdgeType:
    """An edge type from one node type to another."""

    name: str
    source: str
    target: str
    properties: Mapping[str, Property]
    cardinality: Cardinality = field(default_factory=Cardinality)
    uniques: tuple[UniqueRule, ...] = ()
    indexes: tuple[PropertyIndex, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    key: tuple[str, ...] = ()
    """`src` and `dst`, and perhaps a property, in the order in which they form the id; empty when ids are
    explicit or generated."""

    @property
    def merge(self) -> Literal["row", "property"] | None:
        """How its entities are merged, by its `@merge`; None where it has none."""
        return find_granularity(self.annotations)


def find_granularity(annotations: tuple[Annotation, ...]) -> Granularity | None:
    """Return what the `@merge` among the annotations of a type says."""
    value = next((each.value for each in annotations if each.name == "merge"), None)
    return next((one for one in GRANULARITIES if one == value), None)


@dataclass(frozen=True, slots=True)
class SchemaRenames:
    """What the `@rename_from` hints of a schema text say; they serve one migration and are never stored."""

    types: Mapping[tuple[TypeKind, str], str] = field(default_factory=dict)
    """The old name of a (kind, name)."""
    properties: Mapping[tuple[TypeKind, str, str], str] = field(default_factory=dict)
    """The old name of a (kind, owner, name)."""


@dataclass(frozen=True, repr=False)
class Catalog:
    """All types of a schema."""

    interfaces: Mapping[str, Interface]
    nodes: Mapping[str, NodeType]
    edges: Mapping[str, EdgeType]
    fingerprint: str
    """Equal for two schemas exactly when they mean the same: order, comments and hints aside."""
    renames: SchemaRenames = field(default_factory=SchemaRenames, compare=False, repr=False)
    """The hints of the text this catalog was compiled from."""

    def __repr__(self) -> str:
        return f"<Catalog of {', '.join([*self.nodes, *self.edges]) or 'no types'}>"

    def owners(self) -> list[tuple[TypeKind, Interface | NodeType | EdgeType]]:
        """Every type with its kind: interfaces, nodes, edges, each by name."""
        groups: tuple[tuple[TypeKind, Mapping[str, Interface | NodeType | EdgeType]], ...] = (
            ("interface", self.interfaces),
            ("node", self.nodes),
            ("edge", self.edges),
        )
        return [(kind, group[name]) for kind, group in groups for name in sorted(group)]

    @cached_property
    def _edges_by_folded_name(self) -> dict[str, EdgeType]:
        return {name.lower(): edge for name, edge in self.edges.items()}

    def find_edge(self, name: str) -> EdgeType | None:
        """The edge type a traversal or a load file means: exact spelling first, then any case."""
        return self.edges.get(name) or self._edges_by_folded_name.get(name.lower())

    def incident_edges(self, node_type: str) -> list[EdgeType]:
        """The edge types that start or end at a node type, by name."""
        touching = (edge for edge in self.edges.values() if node_type in (edge.source, edge.target))
        return sorted(touching, key=lambda edge: edge.name)
