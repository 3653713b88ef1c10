"""The file in which a person decides about conflicts: a preview writes it, a merge reads it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.files.output_paths import require_output
from omnigraph.engine.graph.layout import split_key, table_key
from omnigraph.engine.merge.choices import (
    ChosenValue,
    EntityChoice,
    GranularityByType,
    MergeChoices,
    MergeGranularity,
    MergeSide,
    TypeChoice,
)
from omnigraph.engine.merge.conflict import ConflictKind, MergeConflict, image_value
from omnigraph.errors import BadRequest

ResolutionsInput = str | os.PathLike[str] | Mapping[str, Any]
"""A path, or what such a file has."""


class _Property(msgspec.Struct, forbid_unknown_fields=True):
    take: MergeSide | None = None
    value: Any | UnsetType = UNSET
    base: Any = None
    ours: Any = None
    theirs: Any = None


class _Conflict(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    id: str | None
    kind: ConflictKind | None = None
    message: str | None = None
    digest: str | None = None
    base: Any = None
    ours: Any = None
    theirs: Any = None
    take: MergeSide | None = None
    properties: dict[str, _Property] = {}


class _Type(msgspec.Struct, forbid_unknown_fields=True):
    take: MergeSide | None = None
    properties: dict[str, MergeSide | None] = {}


class _File(msgspec.Struct, forbid_unknown_fields=True):
    help: Any = None
    source: str | None = None
    into: str | None = None
    granularity: MergeGranularity | dict[str, MergeGranularity] | None = None
    default: MergeSide | None = None
    types: dict[str, MergeSide | _Type | None] = {}
    conflicts: list[_Conflict] = []


@dataclass(frozen=True, slots=True)
class Resolutions:
    """The choices of a file, and the merge it was written for."""

    choices: MergeChoices
    source: str | None = None
    into: str | None = None
    granularity: GranularityByType | None = None

    def require_for(
        self, source: str, into: str, granularity_of: Callable[[str | None], MergeGranularity]
    ) -> None:
        """Fail when they were written for another merge."""
        for what, meant, asked in (("source", self.source, source), ("target", self.into, into)):
            if meant is not None and meant != asked:
                raise BadRequest(
                    f"the resolutions are for the {what} '{meant}', and '{asked}' is to be merged",
                    remedy="preview this merge and decide on its conflicts",
                )
        named = {*self.choices.types, *(one.table_key for one in self.choices.entities)}
        for key in sorted(named) or (None,):
            meant, found = self._granularity_of(key), granularity_of(key)
            if meant is not None and meant != found:
                of = f" of {key}" if isinstance(self.granularity, Mapping) else ""
                raise BadRequest(
                    f"the resolutions are for a merge{of} by {meant}, and this one is by {found}",
                    remedy="preview this merge and decide on its conflicts"
                    if of
                    else f"merge with granularity `{meant}`",
                )

    def _granularity_of(self, key: str | None) -> MergeGranularity | None:
        if isinstance(self.granularity, Mapping):
            return None if key is None else self.granularity.get(key)
        return self.granularity


def read_resolutions(given: ResolutionsInput, keys: Collection[str]) -> Resolutions:
    """Return the choices in a file or a mapping; `keys` are the tables of the graph."""
    plain = given if isinstance(given, Mapping) else _read_json(Path(given))
    try:
        found = msgspec.convert(plain, _File)
    except msgspec.ValidationError as error:
        raise BadRequest(f"the resolutions are invalid: {error}") from None
    types = {_find_key(name, keys): _parse_type_choice(one) for name, one in found.types.items()}
    entities = [_parse_entity_choice(one, keys) for one in found.conflicts if one.id is not None]
    _refuse_repeated(entities)
    choices = MergeChoices(default=found.default, types=types, entities=entities)
    return Resolutions(choices, found.source, found.into, found.granularity)


def _read_json(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise BadRequest(f"the resolutions '{path}' cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"the resolutions '{path}' are not JSON: {error}") from None


def _find_key(name: str, keys: Collection[str]) -> str:
    for key in (name, table_key("node", name), table_key("edge", name)):
        if key in keys:
            return key
    known = ", ".join(split_key(key)[1] for key in sorted(keys))
    raise BadRequest(f"the resolutions name the type '{name}', which is not there", remedy=f"it has: {known}")


def _parse_type_choice(given: MergeSide | _Type | None) -> TypeChoice:
    if not isinstance(given, _Type):
        return TypeChoice(given)
    return TypeChoice(given.take, {name: take for name, take in given.properties.items() if take is not None})


def _parse_entity_choice(given: _Conflict, keys: Collection[str]) -> EntityChoice:
    assert given.id is not None
    chosen: dict[str, MergeSide | ChosenValue] = {}
    for name, one in given.properties.items():
        if one.value is not UNSET and one.take is not None:
            raise BadRequest(
                f"'{name}' of {given.type} '{given.id}' has both a side to take and a value",
                remedy="remove one of them",
            )
        if one.value is not UNSET:
            chosen[name] = ChosenValue(one.value)
        elif one.take is not None:
            chosen[name] = one.take
    return EntityChoice(_find_key(given.type, keys), given.id, given.take, chosen, given.kind, given.digest)


def _refuse_repeated(entities: Sequence[EntityChoice]) -> None:
    seen: set[tuple[str, str, ConflictKind | None]] = set()
    for one in entities:
        if (one.table_key, one.entity_id, one.kind) in seen:
            raise BadRequest(f"the resolutions decide twice on {one.name}", remedy="remove one of them")
        seen.add((one.table_key, one.entity_id, one.kind))


# --- writing -------------------------------------------------------------------------------------


def build_resolutions(
    source: str,
    into: str,
    granularity: GranularityByType,
    choices: MergeChoices,
    conflicts: Sequence[MergeConflict],
) -> dict[str, Any]:
    """Return what a preview writes: every conflict, with its choice or room for one."""
    types = dict.fromkeys(one.table_key for one in conflicts)
    made = _by_conflict(choices)
    return {
        "help": _help(source, into),
        "source": source,
        "into": into,
        "granularity": granularity_json(granularity),
        "default": choices.default,
        "types": {
            key: _encode_type(choices.types.get(key)) for key in dict.fromkeys([*types, *choices.types])
        },
        "conflicts": [
            _encode_conflict(one, made.get(one.mark) or made.get((one.table_key, one.entity_id, None)))
            for one in conflicts
        ],
    }


def granularity_json(found: GranularityByType) -> str | dict[str, str]:
    """Return a granularity as files and servers write it."""
    if isinstance(found, Mapping):
        return {key: one.value for key, one in found.items()}
    return found.value


def _help(source: str, into: str) -> list[str]:
    """Return instructions for the person who edits the file; a merge ignores them."""
    return [
        f"Set `take` to `ours` (as in {into}), `theirs` (as in {source}) or `base` (as before both).",
        "Of a property, `value` in place of `take` gives it another value.",
        "`types` and `default` decide on what has no decision of its own; what stays null is a conflict.",
    ]


def _by_conflict(choices: MergeChoices) -> dict[tuple[str, str | None, ConflictKind | None], EntityChoice]:
    return {(one.table_key, one.entity_id, one.kind): one for one in choices.entities}


def _encode_type(choice: TypeChoice | None) -> Any:
    if choice is None or not choice.properties:
        return choice and choice.take
    return {"take": choice.take, "properties": dict(choice.properties)}


def _encode_conflict(conflict: MergeConflict, choice: EntityChoice | None) -> dict[str, Any]:
    take = choice.take if choice else None
    about = {
        "type": conflict.table_key,
        "id": conflict.entity_id,
        "kind": conflict.kind.value,
        "message": conflict.message,
        "digest": conflict.digest,
        "take": take,
    }
    sides = {"base": conflict.base, "ours": conflict.target, "theirs": conflict.source}
    chosen = dict(choice.properties) if choice else {}
    if conflict.kind in (ConflictKind.DIVERGENT_INSERT, ConflictKind.DIVERGENT_UPDATE):
        names = dict.fromkeys([*conflict.properties, *chosen])
        return {
            **about,
            "properties": {
                name: {
                    **{side: image_value(image, name) for side, image in sides.items()},
                    **_encode_decision(chosen.get(name)),
                }
                for name in names
            },
        }
    images = {side: None if image is None else image.to_json() for side, image in sides.items()}
    made = {name: _encode_decision(one) for name, one in chosen.items()}
    return {**about, **images, **({"properties": made} if made else {})}


def _encode_decision(chosen: MergeSide | ChosenValue | None) -> dict[str, Any]:
    return {"value": chosen.value} if isinstance(chosen, ChosenValue) else {"take": chosen}


def write_resolutions(path: str | os.PathLike[str], content: Mapping[str, Any], *, replaces: bool) -> None:
    """Write decisions for a person to complete; a file that is there is replaced only on request."""
    at = require_output(path)
    encoded = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    try:
        with at.open("wb" if replaces else "xb") as file:
            file.write(encoded)
    except FileExistsError as error:
        raise BadRequest(
            f"'{at}' exists already, and decisions in it would be lost", remedy="choose another name"
        ) from error
    except OSError as error:
        raise BadRequest(f"the resolutions cannot be written to '{at}': {error.strerror}") from error
