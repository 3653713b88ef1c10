"""Merge conflicts, as values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import EntityImage
from omnigraph.engine.graph.layout import EntityKind, split_key
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.rows.blobs import is_blob
from omnigraph.engine.rows.value_checks import find_value_faults


class ConflictKind(StrEnum):
    """How two branches conflict."""

    DIVERGENT_INSERT = "divergent_insert"
    DIVERGENT_UPDATE = "divergent_update"
    DELETE_VS_UPDATE = "delete_vs_update"
    ORPHAN_EDGE = "orphan_edge"
    UNIQUE_VIOLATION = "unique_violation"
    CARDINALITY_VIOLATION = "cardinality_violation"
    VALUE_CONSTRAINT_VIOLATION = "value_constraint_violation"

    @property
    def is_about_one_row(self) -> bool:
        """Whether both branches changed one entity, as opposed to a rule that all entities together break."""
        return self in _OF_ONE_ROW


_OF_ONE_ROW = frozenset(
    {ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE, ConflictKind.DELETE_VS_UPDATE}
)

SEPARABLE = "merge with --granularity property: the branches changed different properties"
"""What to do about such a conflict."""

ConflictKey = tuple[str, str | None, ConflictKind]
"""What makes two conflicts the same one: the table, the entity and the kind."""


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """An entity that two branches changed in incompatible ways."""

    table_key: str
    entity_id: str | None
    """None when the conflict is not about a single entity of the table."""
    kind: ConflictKind
    message: str
    base: EntityImage | None = None
    """The entity at the merge base; None when it did not exist. A Blob is shown by size and digest."""
    source: EntityImage | None = None
    target: EntityImage | None = None
    properties: tuple[str, ...] = ()
    """What the branches disagree on: `src` and `dst` of an edge, then properties as the schema has them."""
    source_changed: tuple[str, ...] = ()
    """What the source changed against the base; of an entity that was there."""
    target_changed: tuple[str, ...] = ()
    """What the target changed against the base."""

    @property
    def is_separable(self) -> bool:
        """Whether the branches changed different properties, so that granularity `property` resolves it."""
        both = {*self.source_changed} & {*self.target_changed}
        return self.kind is ConflictKind.DIVERGENT_UPDATE and both.isdisjoint(self.properties)

    @property
    def entity_kind(self) -> EntityKind:
        """Node or edge."""
        return split_key(self.table_key)[0]

    @property
    def type_name(self) -> str:
        """The type of the entity."""
        return split_key(self.table_key)[1]

    @property
    def mark(self) -> ConflictKey:
        """Identifies the conflict when it is found again."""
        return self.table_key, self.entity_id, self.kind

    @property
    def digest(self) -> str:
        """A hash that changes when the values in conflict change."""
        facts = [self.kind.value, list(self.properties), *(_json(image) for image in self.images.values())]
        if not self.kind.is_about_one_row:
            facts.append(self.message)
        return sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()[:16]

    @property
    def images(self) -> dict[str, EntityImage | None]:
        """The entity on each side."""
        return {"base": self.base, "source": self.source, "target": self.target}

    def to_json(self) -> dict[str, Any]:
        """The conflict as JSON, for scripts and servers."""
        return {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
            "table_key": self.table_key,
            "row_id": self.entity_id,
            "kind": self.kind.value,
            "message": self.message,
            **({"properties": list(self.properties)} if self.properties else {}),
            **({"source_changed": list(self.source_changed)} if self.source_changed else {}),
            **({"target_changed": list(self.target_changed)} if self.target_changed else {}),
            **({"remedy": SEPARABLE} if self.is_separable else {}),
            **{name: image.to_json() for name, image in self.images.items() if image is not None},
        }

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class DroppedValues:
    """Values that only one branch had changed, and that were dropped because the entity was taken whole."""

    table_key: str
    entity_id: str
    source: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Those of the source, by property."""
    target: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Those of the target."""

    def order(self) -> tuple[str, str]:
        """Sorts them by table and id."""
        return self.table_key, self.entity_id

    @property
    def name(self) -> str:
        """The entity as messages name it."""
        kind, type_name = split_key(self.table_key)
        return f"{kind} {type_name} '{self.entity_id}'"

    def to_json(self) -> dict[str, Any]:
        """The values as scripts read them."""
        kind, type_name = split_key(self.table_key)
        return {
            "entity_kind": kind,
            "type_name": type_name,
            "entity_id": self.entity_id,
            **({"source": dict(self.source)} if self.source else {}),
            **({"target": dict(self.target)} if self.target else {}),
        }


MAX_GIVEN_UP = 1000
"""At most so many entities with dropped values are listed; all are counted."""


@dataclass(frozen=True, slots=True)
class GivenUpSummary:
    """How many entities lost values that only one branch had changed, and the first of them."""

    count: int = 0
    first: tuple[DroppedValues, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[GivenUpSummary]) -> GivenUpSummary:
        """All parts together, by table and id."""
        found = list(parts)
        first = sorted((one for part in found for one in part.first), key=DroppedValues.order)
        return cls(sum(part.count for part in found), tuple(first[:MAX_GIVEN_UP]))


def image_value(image: EntityImage | None, name: str) -> Any:
    """A property of an entity, or one of the ends of an edge."""
    if image is None:
        return None
    ends = {"src": image.source, "dst": image.target} if image.source is not None else {}
    return {**image.properties, **ends}.get(name)


def _json(image: EntityImage | None) -> Any:
    return None if image is None else image.to_json()


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """A rule that an entity breaks after a merge."""

    table_key: str
    entity_id: str | None
    kind: ConflictKind
    message: str

    @property
    def mark(self) -> ConflictKey:
        """Identifies the violation when it is found again."""
        return self.table_key, self.entity_id, self.kind


def find_value_violations(target: TableType, rows: pa.Table) -> Iterator[RuleViolation]:
    """Yield values that break a rule of their property."""
    columns = {
        field.name: rows.column(field.name).combine_chunks() for field in target.schema if not is_blob(field)
    }
    for fault in find_value_faults(columns, target):
        entity = rows.column(ID)[fault.row].as_py()
        yield RuleViolation(target.key, entity, ConflictKind.VALUE_CONSTRAINT_VIOLATION, fault.reason)
