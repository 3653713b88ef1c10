"""Which index a column is to have: one decision, for whoever builds and for whoever looks what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.engine.columns import SYSTEM_COLUMNS
from omnigraph.engine.layout import split_key
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.types import Scalar, Type
from omnigraph.storage.index_parts import BTREE, IVF_FLAT
from omnigraph.storage.indexes import IndexCoverage, IndexSpec, text_index
from omnigraph.storage.search import PARTITION_ROWS

VECTOR_ROWS = 5_000
"""With fewer vectors than this comparing with all of them is faster than asking an index."""


class Kind(StrEnum):
    """What an index is for."""

    SCALAR = "scalar"
    """Equality and ranges."""
    TEXT = "text"
    """Words of a text; it never answers equality."""
    VECTOR = "vector"
    """Nearest neighbours."""


_ORDERED = frozenset(Scalar) - {Scalar.STRING, Scalar.BLOB, Scalar.VECTOR}


@dataclass(frozen=True, slots=True)
class Wish:
    """An index that a type is to have."""

    column: str
    kind: Kind

    @property
    def name(self) -> str:
        """The name under which it is stored; a column has one index."""
        return f"{self.column}_idx"

    def is_met_by(self, stored: IndexCoverage) -> bool:
        """Whether a stored index is of this kind, whoever built it."""
        return stored.columns == (self.column,) and _KINDS.get(stored.kind, Kind.VECTOR) is self.kind

    def spec(self, vectors: int = 0) -> IndexSpec:
        """How to build it; for vectors, over so many; where there are none, nothing is in a partition.

        Vectors are kept as they are, in partitions: distances stay exact, so the only rows that a search can
        miss are those of partitions it did not look into, and nothing has to be trained anew when values
        drift. A graph over them (HNSW) or short codes (PQ) would trade that for memory that pays off only
        far above a million vectors.
        """
        match self.kind:
            case Kind.SCALAR:
                return IndexSpec(self.column, BTREE, self.name)
            case Kind.TEXT:
                return text_index(self.column, self.name)
            case Kind.VECTOR:
                partitions = min(vectors, max(1, vectors // PARTITION_ROWS))
                return IndexSpec(
                    self.column, IVF_FLAT, self.name, {"metric": "L2", "num_partitions": partitions}
                )


_KINDS = {"BTREE": Kind.SCALAR, "INVERTED": Kind.TEXT}


def wishes(catalog: Catalog, key: str) -> tuple[Wish, ...]:
    """The indexes of a type, those of its system columns first."""
    kind, name = split_key(key)
    owner = catalog.nodes[name] if kind == "node" else catalog.edges[name]
    found = {column: Wish(column, Kind.SCALAR) for column in SYSTEM_COLUMNS[kind]}
    for column in _declared(owner):
        chosen = index_kind(owner.properties[column].type)
        if chosen is not None:
            found.setdefault(column, Wish(column, chosen))
    return tuple(found.values())


def index_kind(declared: Type) -> Kind | None:
    """The kind of index for a property of this type; lists and blobs have none."""
    if declared.is_list or declared.scalar is Scalar.BLOB:
        return None
    if declared.scalar is Scalar.VECTOR:
        return Kind.VECTOR
    if declared.enum_values or declared.scalar in _ORDERED:
        return Kind.SCALAR
    return Kind.TEXT


def _declared(owner: NodeType | EdgeType) -> list[str]:
    """Columns with an index of their own; one over several columns is a wish that nothing can fulfil."""
    asked = [index.columns[0] for index in owner.indexes if len(index.columns) == 1]
    if isinstance(owner, NodeType) and len(owner.key) == 1:
        (key,) = owner.key
        # A key of free text is the id itself, and that is indexed.
        if index_kind(owner.properties[key].type) is not Kind.TEXT:
            asked.append(key)
    return asked


def missing(asked: tuple[Wish, ...], stored: Mapping[str, IndexCoverage]) -> tuple[Wish, ...]:
    """The wishes that no stored index meets."""
    return tuple(wish for wish in asked if not any(wish.is_met_by(found) for found in stored.values()))
