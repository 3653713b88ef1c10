"""What people decided about conflicts, and how specific a decision is.

A decision about a property of one entity counts more than one about the entity, that more than one
about the type, and that more than one about the whole merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from omnigraph.engine.merge.conflict import ConflictKind
from omnigraph.errors import BadRequest


class Take(StrEnum):
    """Whose version of an entity or a property stands."""

    OURS = "ours"
    """The target's."""
    THEIRS = "theirs"
    """The source's."""
    BASE = "base"
    """That of the commit where the branches parted."""


class Granularity(StrEnum):
    """How close together two changes must be to contradict each other."""

    ROW = "row"
    """Both branches changed one entity."""
    PROPERTY = "property"
    """Both branches changed one property of one entity."""


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A value that neither branch has."""

    value: Any


@dataclass(frozen=True, slots=True)
class TypeChoice:
    """What stands for all contested entities of a type."""

    take: Take | None = None
    properties: Mapping[str, Take] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntityChoice:
    """What stands for one entity."""

    table_key: str
    entity_id: str
    take: Take | None = None
    properties: Mapping[str, Take | GivenValue] = field(default_factory=dict)
    kind: ConflictKind | None = None
    """The conflict it is meant for; None means any about the entity."""
    digest: str | None = None
    """Of the conflict that was decided on; None means that it may have changed since."""

    @property
    def decides(self) -> bool:
        """Whether anything was chosen."""
        return self.take is not None or bool(self.properties)

    def is_about(self, kind: ConflictKind) -> bool:
        """Whether it is meant for a conflict of this kind."""
        return self.kind is None or self.kind == kind

    @property
    def name(self) -> str:
        """The entity as messages name it."""
        kind, _, type_name = self.table_key.partition(":")
        return f"{kind} {type_name} '{self.entity_id}'"


@dataclass(frozen=True)
class Choices:
    """All decisions of a merge."""

    strategy: Take | None = None
    default: Take | None = None
    types: Mapping[str, TypeChoice] = field(default_factory=dict)
    """By table key."""
    entities: Sequence[EntityChoice] = ()

    def take_for(self, key: str) -> Take | None:
        """Whose version of contested entities of a type stands, unless something more specific is said."""
        return self.of_type(key).take or self.default or self.strategy

    def of_type(self, key: str) -> TypeChoice:
        """What was said about a type."""
        return self.types.get(key, TypeChoice())

    def of_entities(self, key: str) -> Sequence[EntityChoice]:
        """What was said about entities of a type."""
        return self._by_table.get(key, ())

    def about(self, key: str, entity_id: str | None, kind: ConflictKind) -> EntityChoice | None:
        """What was said about a rule that an entity breaks: of the entity, or of its type.

        What is said about the whole merge is not meant for these: there whole entities come or go with it.
        """
        if entity_id is None:
            return None
        said = [one for one in self._by_entity.get((key, entity_id), ()) if one.is_about(kind)]
        if said:
            return max(said, key=lambda one: one.kind is not None)
        take = self.of_type(key).take
        return None if take is None else EntityChoice(key, entity_id, take)

    @cached_property
    def _by_table(self) -> dict[str, list[EntityChoice]]:
        found: dict[str, list[EntityChoice]] = {}
        for choice in self.entities:
            if choice.decides:
                found.setdefault(choice.table_key, []).append(choice)
        return found

    @cached_property
    def _by_entity(self) -> dict[tuple[str, str], list[EntityChoice]]:
        found: dict[tuple[str, str], list[EntityChoice]] = {}
        for choice in self.entities:
            if choice.decides:
                found.setdefault((choice.table_key, choice.entity_id), []).append(choice)
        return found


STRATEGIES = (Take.OURS, Take.THEIRS)


def strategy_of(text: str | None) -> Take | None:
    """A strategy as users write it."""
    if text is None or text in STRATEGIES:
        return None if text is None else Take(text)
    raise BadRequest(f"'{text}' is no strategy of a merge", remedy=_choose(STRATEGIES))


def granularity_of(text: str) -> Granularity:
    """A granularity as users write it."""
    if text in list(Granularity):
        return Granularity(text)
    raise BadRequest(f"'{text}' is no granularity of a merge", remedy=_choose(Granularity))


def _choose(words: Iterable[str]) -> str:
    return f"choose one of: {', '.join(words)}"
