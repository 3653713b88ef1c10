"""Changes as values: which entity, what happened to it, and how it was before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from enum import StrEnum
from itertools import islice
from typing import Any, TypeVar

from omnigraph.deferred_dataclass import dataclass
from omnigraph.display.markup import FIRST_ROWS, Cell, Heading, render_html_table
from omnigraph.display.text import format_count, format_value
from omnigraph.engine.graph.layout import EntityKind, fnv1a64, split_key, table_key
from omnigraph.errors import BadRequest
from omnigraph.lang.values import Json

Word = TypeVar("Word")


class ChangeOperation(StrEnum):
    """What happened to an entity."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class EntityImage:
    """An entity at one snapshot, with JSON values; a Blob is `base64:` and its bytes."""

    properties: Mapping[str, Json] = field(hash=False)
    source: str | None = None
    """Where an edge starts."""
    target: str | None = None
    """Where it ends."""

    def to_json(self) -> dict[str, Any]:
        """The image as scripts read it."""
        ends = {} if self.source is None else {"endpoints": {"from": self.source, "to": self.target}}
        return {"properties": dict(self.properties), **ends}


@dataclass(frozen=True, slots=True)
class Change:
    """One entity that differs; an insert has no `before`, a delete no `after`."""

    kind: EntityKind
    type_name: str
    id: str
    op: ChangeOperation
    before: EntityImage | None
    after: EntityImage | None
    changed: tuple[str, ...] = ()
    """What an update changed: `src` and `dst` of an edge, then properties in the order of the schema."""

    def to_json(self) -> dict[str, Any]:
        """The change as scripts read it."""
        images = {"before": self.before, "after": self.after}
        return {
            "kind": self.kind,
            "type": {"id": fnv1a64(self.type_name), "name": self.type_name},
            "id": self.id,
            "op": self.op.value,
            **({"changed": list(self.changed)} if self.op is ChangeOperation.UPDATE else {}),
            **{name: image.to_json() for name, image in images.items() if image is not None},
        }


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """How many entities of a type differ."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def to_json(self) -> dict[str, int]:
        """The counts as scripts read them."""
        return {"inserted": self.inserted, "updated": self.updated, "deleted": self.deleted}


Tally = tuple[str, ChangeOperation]
"""The table and the operation that a change counts for."""


def tally_of(found: Change) -> Tally:
    """Return what a change counts for."""
    return table_key(found.kind, found.type_name), found.op


def count_tallies(counted: Counter[Tally]) -> dict[str, ChangeCounts]:
    """Return how many changes of each kind there are, by table."""
    return {
        key: ChangeCounts(*(counted[key, op] for op in ChangeOperation))
        for key in dict.fromkeys(key for key, _ in counted)
    }


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes are wanted; empty means all."""

    kinds: frozenset[EntityKind] = frozenset()
    types: frozenset[str] = frozenset()
    """Names of types, or `node:Name` and `edge:Name`."""
    ops: frozenset[ChangeOperation] = frozenset()

    def wants_table(self, key: str) -> bool:
        """Whether it includes changes of this table."""
        kind, name = split_key(key)
        return (not self.kinds or kind in self.kinds) and (
            not self.types or name in self.types or key in self.types
        )

    def wants(self, op: ChangeOperation) -> bool:
        """Whether it includes this operation."""
        return not self.ops or op in self.ops

    def of(self, stat: ChangeCounts) -> ChangeCounts:
        """Return the counts of the operations it includes."""
        return ChangeCounts(
            stat.inserted if self.wants(ChangeOperation.INSERT) else 0,
            stat.updated if self.wants(ChangeOperation.UPDATE) else 0,
            stat.deleted if self.wants(ChangeOperation.DELETE) else 0,
        )

    def to_json(self) -> dict[str, list[str]]:
        """Return the filter as JSON; equal for equal filters."""
        return {"kinds": sorted(self.kinds), "types": sorted(self.types), "ops": sorted(self.ops)}


def parse_filter(
    kinds: Iterable[str] | None, types: str | Iterable[str] | None, ops: Iterable[str] | None
) -> ChangeFilter:
    """Return the filter for the words of a user."""
    wanted = [types] if isinstance(types, str) else types or ()
    return ChangeFilter(
        frozenset(_parse_words("kind of entity", kinds, _KINDS).values()),
        frozenset(wanted),
        frozenset(_parse_words("sort of change", ops, {op.value: op for op in ChangeOperation}).values()),
    )


_KINDS: dict[str, EntityKind] = {"node": "node", "edge": "edge"}


def _parse_words(what: str, words: Iterable[str] | None, known: Mapping[str, Word]) -> dict[str, Word]:
    found = [words] if isinstance(words, str) else list(words or ())
    for word in found:
        if word not in known:
            raise BadRequest(f"'{word}' is no {what}", remedy=f"choose one of: {', '.join(known)}")
    return {word: known[word] for word in found}


def require_types(wanted: ChangeFilter, keys: Collection[str]) -> None:
    """Fail when the filter names a type that neither snapshot has."""
    names = {key.partition(":")[2] for key in keys}
    for name in sorted(wanted.types):
        if name not in names and name not in keys:
            raise BadRequest(f"there is no type '{name}'", remedy=f"there are: {', '.join(sorted(names))}")


_COUNTS = [
    Heading("type"),
    Heading("kind"),
    Heading("inserted", is_number=True),
    Heading("updated", is_number=True),
    Heading("deleted", is_number=True),
]
_CHANGES = [Heading("change"), Heading("type"), Heading("id"), Heading("what")]


def render_counts(caption: str, stats: Mapping[str, ChangeCounts], rest: Iterable[str] = ()) -> str:
    """Render how many entities of each type differ."""
    return render_html_table(caption, _COUNTS, map(_count_cells, stats.items()), rest)


def _count_cells(item: tuple[str, ChangeCounts]) -> list[Cell]:
    key, counts = item
    kind, name = split_key(key)
    return [name, kind, counts.inserted, counts.updated, counts.deleted]


def render_changes(changes: Iterable[Change], total: int) -> str:
    """Render the first changes, one per line; `total` says how many there are."""
    more = [f"… {format_count(total - FIRST_ROWS, 'more change')}"] if total > FIRST_ROWS else []
    return render_html_table("Changes", _CHANGES, map(_change_cells, islice(changes, FIRST_ROWS)), more)


def _change_cells(change: Change) -> list[Cell]:
    return [change.op.value, change.type_name, change.id, _describe_change(change)]


def _describe_change(change: Change) -> str:
    before, after = _values(change.before), _values(change.after)
    if change.op is ChangeOperation.UPDATE:
        return ", ".join(
            f"{name}: {format_value(before.get(name))} → {format_value(after.get(name))}"
            for name in change.changed
        )
    held = after or before
    return ", ".join(f"{name}: {format_value(value)}" for name, value in held.items() if value is not None)


def _values(image: EntityImage | None) -> dict[str, Json]:
    if image is None:
        return {}
    ends: dict[str, Json] = {} if image.source is None else {"src": image.source, "dst": image.target}
    return {**ends, **image.properties}
