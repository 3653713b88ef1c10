"""What people decided about conflicts.

The most specific choice wins: a property of one entity, then the entity, then the type, then the whole merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import split_key, table_key
from omnigraph.engine.graph.table_types import ID, SYSTEM_COLUMNS, TableType
from omnigraph.engine.merge.conflict import ConflictKind, MergeConflict, RuleViolation
from omnigraph.engine.rows.blobs import read_blobs, reject_external
from omnigraph.engine.rows.json_columns import ParsedColumn, parse_column
from omnigraph.errors import BadRequest, InvalidValue, StaleResolutions
from omnigraph.lang.types import STRING, Scalar


class MergeSide(StrEnum):
    """Which side wins for an entity or a property."""

    OURS = "ours"
    """The target's."""
    THEIRS = "theirs"
    """The source's."""
    BASE = "base"
    """The version of the merge base."""


class MergeGranularity(StrEnum):
    """What two branches must both change for a conflict."""

    ROW = "row"
    """Both branches changed one entity."""
    PROPERTY = "property"
    """Both branches changed one property of one entity."""


@dataclass(frozen=True, slots=True)
class ChosenValue:
    """A value that neither branch has."""

    value: Any


@dataclass(frozen=True, slots=True)
class TypeChoice:
    """A choice for all contested entities of a type."""

    take: MergeSide | None = None
    properties: Mapping[str, MergeSide] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntityChoice:
    """A choice for one entity."""

    table_key: str
    entity_id: str
    take: MergeSide | None = None
    properties: Mapping[str, MergeSide | ChosenValue] = field(default_factory=dict)
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
class MergeChoices:
    """All decisions of a merge."""

    strategy: MergeSide | None = None
    default: MergeSide | None = None
    types: Mapping[str, TypeChoice] = field(default_factory=dict)
    """By table key."""
    entities: Sequence[EntityChoice] = ()

    def take_for(self, key: str) -> MergeSide | None:
        """Return which side wins for contested entities of a type, unless a more specific choice exists."""
        return self.of_type(key).take or self.default or self.strategy

    def of_type(self, key: str) -> TypeChoice:
        """Return the choice for a type."""
        return self.types.get(key, TypeChoice())

    def of_entities(self, key: str) -> Sequence[EntityChoice]:
        """Return the choices for entities of a type."""
        return self._by_table.get(key, ())

    def about(self, key: str, entity_id: str | None, kind: ConflictKind) -> EntityChoice | None:
        """Return the choice for a rule that an entity breaks: of the entity, or of its type.

        A choice for the whole merge does not apply here: it would add or delete whole entities.
        """
        if entity_id is None:
            return None
        found = [one for one in self._by_entity.get((key, entity_id), ()) if one.is_about(kind)]
        if found:
            return max(found, key=lambda one: one.kind is not None)
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


STRATEGIES = (MergeSide.OURS, MergeSide.THEIRS)


GranularityByType = MergeGranularity | Mapping[str, MergeGranularity]
"""That of all types, or of each by the name of its table where they differ."""


def parse_granularity(text: str | None) -> MergeGranularity | None:
    """Return the granularity that a user named, if any."""
    if text is None:
        return None
    if text in list(MergeGranularity):
        return MergeGranularity(text)
    raise BadRequest(f"'{text}' is not a merge granularity", remedy=_list_choices(MergeGranularity))


def choose_granularity(
    asked: MergeGranularity | None, declared: str | None = None, default: str | None = None
) -> MergeGranularity:
    """Return the granularity of a type: of the call, else of its `@merge`, else the default, else `row`."""
    if asked is not None:
        return asked
    return MergeGranularity(declared or default or MergeGranularity.ROW)


@dataclass(frozen=True, slots=True)
class Strategies:
    """Which side wins: everywhere, and by type and property as users name them."""

    everywhere: MergeSide | None = None
    by_name: Mapping[str, MergeSide] = field(default_factory=dict)
    """By `Person`, `Person.age`, or either behind `node:` or `edge:`."""


StrategyInput = str | Mapping[str, Literal["ours", "theirs"]] | list[str] | None
"""One side for everything; or sides by type and property, as a mapping or as texts like `Person.age=ours`."""


def parse_strategies(given: StrategyInput) -> Strategies:
    """Return the strategies that a user named."""
    if given is None or isinstance(given, str):
        return _parse_strategies([] if given is None else [("", given)])
    if isinstance(given, Mapping):
        return _parse_strategies(given.items())
    pairs = [text.rpartition("=") for text in given]
    return _parse_strategies((name, side) for name, _, side in pairs)


def _parse_strategies(given: Iterable[tuple[str, str]]) -> Strategies:
    found: dict[str, MergeSide] = {}
    for name, side in given:
        if side not in STRATEGIES:
            raise BadRequest(f"'{side}' is not a merge strategy", remedy=_list_choices(STRATEGIES))
        place = name or "*"
        if found.get(place, side) != side:
            raise BadRequest(f"there are two strategies for '{place}'", remedy="name one of them")
        found[place] = MergeSide(side)
    everywhere = found.pop("*", None)
    return Strategies(everywhere, found)


def with_strategies(
    choices: MergeChoices, strategies: Strategies, targets: Mapping[str, TableType]
) -> MergeChoices:
    """Return the choices with strategies for everything that they do not decide."""
    types = dict(choices.types)
    for name, side in strategies.by_name.items():
        key, declared = _find_place(name, targets)
        known = types.get(key, TypeChoice())
        if declared is None:
            types[key] = replace(known, take=known.take or side)
        elif declared not in known.properties:
            types[key] = replace(known, properties={**known.properties, declared: side})
    return replace(choices, strategy=strategies.everywhere, types=types)


def _find_place(name: str, targets: Mapping[str, TableType]) -> tuple[str, str | None]:
    """Return the table of `Type` or `Type.property`, and the property."""
    type_name, dot, declared = name.partition(".")
    for key in (type_name, table_key("node", type_name), table_key("edge", type_name)):
        if key in targets:
            break
    else:
        known = ", ".join(split_key(key)[1] for key in sorted(targets))
        raise BadRequest(
            f"a strategy names the type '{type_name}', which is not there", remedy=f"it has: {known}"
        )
    if not dot:
        return key, None
    columns = [field.name for field in targets[key].schema if field.name != ID]
    if declared not in columns:
        raise BadRequest(
            f"a strategy names '{name}', and '{type_name}' has no property '{declared}'",
            remedy=f"it has: {', '.join(columns)}",
        )
    return key, declared


def _list_choices(words: Iterable[str]) -> str:
    return f"choose one of: {', '.join(words)}"


def build_value_column(
    target: TableType, name: str, given: Mapping[int, Any], size: int, kind: pa.DataType
) -> pa.Array:
    """Return a column with these values at these positions, and null elsewhere; Blobs as bytes."""
    if not given:
        return pa.nulls(size, kind)
    declared = target.owner.properties.get(name)
    if declared is None or not declared.type.nullable:
        _refuse_null(target, name, given)
    values = [given.get(at) for at in range(size)]
    cells = _parse_values(target, name, values)
    for reason in cells.faults.values():
        raise InvalidValue(f"in a decision on {target.kind} type '{target.name}': {reason}")
    if declared is not None and declared.type.scalar is Scalar.BLOB:
        return cells.array.storage.field("data")
    return cells.array.cast(kind)


def _parse_values(target: TableType, name: str, values: list[Any]) -> ParsedColumn:
    if name in SYSTEM_COLUMNS[target.kind]:
        return parse_column(values, name, STRING)
    type_ = target.owner.properties[name].type
    if type_.scalar is Scalar.BLOB:
        return read_blobs(values, name, target.schema.field(name), reject_external)
    return parse_column(values, name, type_)


def _refuse_null(target: TableType, name: str, given: Mapping[int, Any]) -> None:
    if any(value is None for value in given.values()):
        raise InvalidValue(
            f"'{name}' of {target.kind} type '{target.name}' cannot be null",
            remedy="decide on a value for it",
        )


class PendingChoices:
    """The choices about single entities whose conflict was not found yet."""

    def __init__(self, choices: MergeChoices) -> None:
        self._pending: dict[tuple[str, str | None], list[EntityChoice]] = {}
        self._changed = False
        for one in choices.entities:
            if one.decides:
                self._pending.setdefault((one.table_key, one.entity_id), []).append(one)

    def waits_for(self, violation: RuleViolation) -> bool:
        """Whether a choice waits for this conflict."""
        return bool(self._pending.get((violation.table_key, violation.entity_id)))

    @property
    def has_pending(self) -> bool:
        """Whether any choice waits for its conflict."""
        return any(self._pending.values())

    def match(self, conflicts: Iterable[MergeConflict]) -> None:
        """Match choices with existing conflicts."""
        for conflict in conflicts:
            waiting = self._pending.get((conflict.table_key, conflict.entity_id), [])
            for choice in [one for one in waiting if one.is_about(conflict.kind)]:
                if choice.digest in (None, conflict.digest):
                    waiting.remove(choice)
                else:
                    self._changed = True

    def require_all_matched(self) -> None:
        """Fail when a choice is about an entity that is not in conflict, or in another conflict."""
        if self.has_pending:
            names = [one.name for waiting in self._pending.values() for one in waiting]
            raise StaleResolutions(names, changed=self._changed)
