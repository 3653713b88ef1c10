"""Which records of a file get a vector, in which field and from which texts, as a file says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omnigraph.engine.load.sources.yaml_text import Told, read_yaml, refusal
from omnigraph.errors import BadRequest
from omnigraph.lang.values import legible

EMBEDDED = Path("build", "seed.embedded.jsonl")
"""Where the lines go when a manifest does not say it."""


@dataclass(frozen=True, slots=True)
class Target:
    """How the records of one type are embedded."""

    target: str
    """The field that gets the vector."""
    fields: tuple[str, ...]
    """The fields whose values are the text."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The types that are embedded, all at one dimension."""

    dimension: int
    types: Mapping[str, Target]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A recipe together with the files it is for."""

    input: Path
    output: Path
    recipe: Recipe


def read_recipe(path: Path) -> Recipe:
    """A recipe from a file of YAML or JSON."""
    return _File(path).recipe(_document(path), "the file")


def read_manifest(path: Path) -> Manifest:
    """A manifest from a file of YAML or JSON; the files it names count from its own folder."""
    file, top = _File(path), _document(path)
    members = file.members(top, "the file")
    raw = file.path_in(members.get("sources"), "sources", "raw_seed") or file.path_in(
        members.get("seed"), "seed", "data"
    )
    if raw is None:
        raise file.wrong(top, "sources.raw_seed is missing")
    if "embeddings" not in members:
        raise file.wrong(top, "embeddings is missing")
    output = file.path_in(members.get("artifacts"), "artifacts", "embedded_seed")
    return Manifest(raw, output or path.parent / EMBEDDED, file.recipe(members["embeddings"], "embeddings"))


def _document(path: Path) -> Told:
    try:
        return read_yaml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
        raise BadRequest(f"cannot read '{path}': {reason}", remedy="check the path") from failure


@dataclass(frozen=True, slots=True)
class _File:
    """Reads values of one file, and says where one is wrong."""

    path: Path

    def recipe(self, told: Told, where: str) -> Recipe:
        members = self.members(told, where)
        dimension, types = (self._needed(members, told, where, name) for name in ("dimension", "types"))
        if not isinstance(dimension.value, int) or isinstance(dimension.value, bool) or dimension.value < 1:
            raise self.wrong(dimension, "dimension must be a number from 1 on")
        found = {name: self._target(name, one) for name, one in self.members(types, "types").items()}
        if not found:
            raise self.wrong(types, "types has no type")
        return Recipe(dimension.value, found)

    def path_in(self, told: Told | None, where: str, name: str) -> Path | None:
        """The file that a member names."""
        found = None if told is None else self.members(told, where).get(name)
        return None if found is None else self.path.parent / self._text(found, f"{where}.{name}")

    def members(self, told: Told, where: str) -> dict[str, Told]:
        if not isinstance(told.value, dict):
            raise self.wrong(told, f"{where} must have members")
        return told.value

    def wrong(self, told: Told, reason: str) -> BadRequest:
        return refusal(str(self.path), told.line, reason)

    def _target(self, name: str, told: Told) -> Target:
        where = f"types.{legible(name)}"
        members = self.members(told, where)
        target, fields = (self._needed(members, told, where, part) for part in ("target", "fields"))
        if not isinstance(fields.value, list) or not fields.value:
            raise self.wrong(fields, f"{where}.fields must be a list of fields")
        return Target(self._text(target, f"{where}.target"), self._texts(fields.value, f"{where}.fields"))

    def _needed(self, members: Mapping[str, Told], told: Told, where: str, name: str) -> Told:
        if name not in members:
            raise self.wrong(told, f"{name} is missing in {where}")
        return members[name]

    def _texts(self, told: Sequence[Told], where: str) -> tuple[str, ...]:
        return tuple(self._text(one, where) for one in told)

    def _text(self, told: Told, where: str) -> str:
        if not isinstance(told.value, str) or not told.value.strip():
            raise self.wrong(told, f"{where} must be a text")
        return told.value
