"""The indexes that a schema declares: used to build them and to find missing ones."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias, get_args

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.table_types import SYSTEM_COLUMNS
from omnigraph.lang.schema.catalog import Catalog, EdgeType, Language, Metric, NodeType
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.storage.index_parts import BTREE, IVF_FLAT
from omnigraph.storage.indexes import IndexCoverage, IndexSpec, text_index_spec
from omnigraph.storage.search import PARTITION_ROWS

VECTOR_ROWS = 5_000
"""With fewer vectors than this comparing with all of them is faster than asking an index."""


class IndexKind(StrEnum):
    """What an index is for."""

    SCALAR = "scalar"
    """Equality and ranges."""
    TEXT = "text"
    """Words of a text; it never answers equality."""
    VECTOR = "vector"
    """Nearest neighbours."""


_ORDERED = frozenset(Scalar) - {Scalar.STRING, Scalar.BLOB, Scalar.VECTOR}


@dataclass(frozen=True, slots=True)
class DeclaredIndex:
    """An index that a type is to have."""

    column: str
    kind: IndexKind
    metric: Metric = "l2"
    """How an index of vectors compares."""
    language: Language = "english"
    """How an index of texts makes tokens."""

    @property
    def name(self) -> str:
        """The name under which it is stored; a column has one index."""
        return f"{self.column}_idx"

    def is_met_by(self, stored: IndexCoverage) -> bool:
        """Whether a stored index is of this kind, regardless of which program built it."""
        if stored.columns != (self.column,) or _KINDS.get(stored.kind, IndexKind.VECTOR) is not self.kind:
            return False
        match self.kind:
            case IndexKind.VECTOR:
                return stored.metric == self.metric
            case IndexKind.TEXT:
                foreign = self.language == "english" and _is_foreign(stored)
                return foreign or stored.has_language(self.language)
        return True

    def spec(self, vectors: int = 0) -> IndexSpec:
        """How to build it; for vectors, over so many; where there are none, nothing is in a partition.

        Vectors are kept as they are, in partitions: distances stay exact, so the only rows that a search can
        miss are those of partitions it did not look into, and nothing has to be retrained when values
        drift. A graph over them (HNSW) or short codes (PQ) would trade that for memory that pays off only
        far above a million vectors.
        """
        match self.kind:
            case IndexKind.SCALAR:
                return IndexSpec(self.column, BTREE, self.name)
            case IndexKind.TEXT:
                return text_index_spec(self.column, self.name, self.language)
            case IndexKind.VECTOR:
                partitions = min(vectors, max(1, vectors // PARTITION_ROWS))
                return IndexSpec(
                    self.column,
                    IVF_FLAT,
                    self.name,
                    {"metric": self.metric.upper(), "num_partitions": partitions},
                )


_KINDS = {"BTREE": IndexKind.SCALAR, "INVERTED": IndexKind.TEXT}


def _is_foreign(stored: IndexCoverage) -> bool:
    """Whether a text index makes tokens in no way that a schema can declare."""
    return not any(stored.has_language(language) for language in get_args(Language))


def declared_indexes(catalog: Catalog, key: str) -> tuple[DeclaredIndex, ...]:
    """The indexes of a type, those of its system columns first."""
    kind, name = split_key(key)
    owner = catalog.nodes[name] if kind == "node" else catalog.edges[name]
    found = {column: DeclaredIndex(column, IndexKind.SCALAR) for column in SYSTEM_COLUMNS[kind]}
    for column in _declared(owner):
        chosen = index_kind(owner.properties[column].type)
        if chosen is not None:
            declared = owner.properties[column]
            found.setdefault(column, DeclaredIndex(column, chosen, declared.metric, declared.language))
    return tuple(found.values())


def index_kind(declared: ValueType) -> IndexKind | None:
    """The kind of index for a property of this type; lists and blobs have none."""
    if declared.is_list or declared.scalar is Scalar.BLOB:
        return None
    if declared.scalar is Scalar.VECTOR:
        return IndexKind.VECTOR
    if declared.enum_values or declared.scalar in _ORDERED:
        return IndexKind.SCALAR
    return IndexKind.TEXT


def _declared(owner: NodeType | EdgeType) -> list[str]:
    """Columns with an index of their own; indexes over several columns are not supported."""
    asked = [index.columns[0] for index in owner.indexes if len(index.columns) == 1]
    if isinstance(owner, NodeType) and len(owner.key) == 1:
        (key,) = owner.key
        # A key of free text is the id itself, and that is indexed.
        if index_kind(owner.properties[key].type) is not IndexKind.TEXT:
            asked.append(key)
    return asked


def find_missing_indexes(
    asked: tuple[DeclaredIndex, ...], stored: Mapping[str, IndexCoverage]
) -> tuple[DeclaredIndex, ...]:
    """Return the declared indexes that no stored index satisfies."""
    return tuple(wish for wish in asked if not any(wish.is_met_by(found) for found in stored.values()))


PendingIndexes: TypeAlias = Mapping[str, tuple[str, ...]]
"""The columns, by table key."""


def pending_json(pending: PendingIndexes) -> dict[str, list[str]]:
    """What is pending, as plain values."""
    return {key: list(columns) for key, columns in sorted(pending.items())}


def describe_pending(pending: PendingIndexes) -> list[str]:
    """What is pending, a line for each table."""
    return [f"pending indexes on {key}: {', '.join(columns)}" for key, columns in sorted(pending.items())]
