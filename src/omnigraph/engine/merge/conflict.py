"""What a merge cannot decide by itself, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any

import msgspec

from omnigraph.engine.changes.change import Image
from omnigraph.engine.layout import EntityKind, split_key


class ConflictKind(StrEnum):
    """How two branches contradict each other."""

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

Mark = tuple[str, str | None, ConflictKind]
"""What makes two conflicts the same one: the table, the entity and the kind."""


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """An entity that two branches left in states that do not go together."""

    table_key: str
    entity_id: str | None
    """None when the conflict is not about a single entity of the table."""
    kind: ConflictKind
    message: str
    base: Image | None = None
    """The entity where the branches parted; None when it was not there. A Blob is told by size and digest."""
    source: Image | None = None
    target: Image | None = None
    properties: tuple[str, ...] = ()
    """What the branches disagree on: `src` and `dst` of an edge, then properties as the schema has them."""

    @property
    def entity_kind(self) -> EntityKind:
        """Node or edge."""
        return split_key(self.table_key)[0]

    @property
    def type_name(self) -> str:
        """The type of the entity."""
        return split_key(self.table_key)[1]

    @property
    def mark(self) -> Mark:
        """What makes it the same conflict when it is met again."""
        return self.table_key, self.entity_id, self.kind

    @property
    def digest(self) -> str:
        """Tells whether a conflict is still about the values that somebody decided on."""
        told = [self.kind.value, list(self.properties), *(_json(image) for image in self.images.values())]
        if not self.kind.is_about_one_row:
            told.append(self.message)
        return sha256(msgspec.json.encode(told, order="sorted")).hexdigest()[:16]

    @property
    def images(self) -> dict[str, Image | None]:
        """The entity on each side."""
        return {"base": self.base, "source": self.source, "target": self.target}

    def to_json(self) -> dict[str, Any]:
        """The conflict as scripts and servers tell it."""
        return {
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "entity_id": self.entity_id,
            "table_key": self.table_key,
            "row_id": self.entity_id,
            "kind": self.kind.value,
            "message": self.message,
            **({"properties": list(self.properties)} if self.properties else {}),
            **{name: image.to_json() for name, image in self.images.items() if image is not None},
        }

    def __str__(self) -> str:
        return self.message


def _json(image: Image | None) -> Any:
    return None if image is None else image.to_json()
