"""Which records of a file get a vector, in which field and from which texts, as a file says it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omnigraph.errors import BadRequest
from omnigraph.lang.values import shorten_legibly
from omnigraph.yaml_text import YamlValue, read_yaml, read_yaml_text, yaml_error

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


def _document(path: Path) -> YamlValue:
    try:
        return read_yaml(read_yaml_text(path), str(path))
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
        raise BadRequest(f"cannot read '{path}': {reason}", remedy="check the path") from failure


@dataclass(frozen=True, slots=True)
class _File:
    """Reads values of one file, and says where one is wrong."""

    path: Path

    def recipe(self, node: YamlValue, where: str) -> Recipe:
        members = self.members(node, where)
        dimension, types = (self._needed(members, node, where, name) for name in ("dimension", "types"))
        if not isinstance(dimension.value, int) or isinstance(dimension.value, bool) or dimension.value < 1:
            raise self.wrong(dimension, "dimension must be a number from 1 on")
        found = {name: self._target(name, one) for name, one in self.members(types, "types").items()}
        if not found:
            raise self.wrong(types, "types has no type")
        return Recipe(dimension.value, found)

    def path_in(self, node: YamlValue | None, where: str, name: str) -> Path | None:
        """The file that a member names."""
        found = None if node is None else self.members(node, where).get(name)
        return None if found is None else self.path.parent / self._text(found, f"{where}.{name}")

    def members(self, node: YamlValue, where: str) -> dict[str, YamlValue]:
        if not isinstance(node.value, dict):
            raise self.wrong(node, f"{where} must have members")
        return node.value

    def wrong(self, node: YamlValue, reason: str) -> BadRequest:
        return yaml_error(str(self.path), node.line, reason)

    def _target(self, name: str, node: YamlValue) -> Target:
        where = f"types.{shorten_legibly(name)}"
        members = self.members(node, where)
        target, fields = (self._needed(members, node, where, part) for part in ("target", "fields"))
        if not isinstance(fields.value, list) or not fields.value:
            raise self.wrong(fields, f"{where}.fields must be a list of fields")
        return Target(self._text(target, f"{where}.target"), self._texts(fields.value, f"{where}.fields"))

    def _needed(self, members: Mapping[str, YamlValue], node: YamlValue, where: str, name: str) -> YamlValue:
        if name not in members:
            raise self.wrong(node, f"{name} is missing in {where}")
        return members[name]

    def _texts(self, node: Sequence[YamlValue], where: str) -> tuple[str, ...]:
        return tuple(self._text(one, where) for one in node)

    def _text(self, node: YamlValue, where: str) -> str:
        if not isinstance(node.value, str) or not node.value.strip():
            raise self.wrong(node, f"{where} must be a text")
        return node.value
