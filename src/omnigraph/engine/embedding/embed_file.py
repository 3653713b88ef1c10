"""Vectors into the records of a file of NDJSON, before it is loaded anywhere.

Every line that gets no new vector is written as it was, and in the others every other value is. The new file
appears complete under its name, or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.embedder import Embedder, embed_each
from omnigraph.embed.vectors import Vector
from omnigraph.engine.embedding.result import MAX_REPORTED_REFUSALS
from omnigraph.engine.files.atomic_output import new_file
from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest
from omnigraph.lang.values import shorten_legibly
from omnigraph.progress import Stage, stage
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
    return _File(path).recipe(_read_document(path), "the file")


def read_manifest(path: Path) -> Manifest:
    """A manifest from a file of YAML or JSON; the files it names count from its own folder."""
    file, top = _File(path), _read_document(path)
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


def _read_document(path: Path) -> YamlValue:
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
        dimension, types = (
            self._require_member(members, node, where, name) for name in ("dimension", "types")
        )
        if not isinstance(dimension.value, int) or isinstance(dimension.value, bool) or dimension.value < 1:
            raise self.wrong(dimension, "dimension must be a number from 1 on")
        found = {name: self._parse_target(name, one) for name, one in self.members(types, "types").items()}
        if not found:
            raise self.wrong(types, "types has no type")
        return Recipe(dimension.value, found)

    def path_in(self, node: YamlValue | None, where: str, name: str) -> Path | None:
        """The file that a member names."""
        found = None if node is None else self.members(node, where).get(name)
        return None if found is None else self.path.parent / self._parse_text(found, f"{where}.{name}")

    def members(self, node: YamlValue, where: str) -> dict[str, YamlValue]:
        if not isinstance(node.value, dict):
            raise self.wrong(node, f"{where} must have members")
        return node.value

    def wrong(self, node: YamlValue, reason: str) -> BadRequest:
        return yaml_error(str(self.path), node.line, reason)

    def _parse_target(self, name: str, node: YamlValue) -> Target:
        where = f"types.{shorten_legibly(name)}"
        members = self.members(node, where)
        target, fields = (self._require_member(members, node, where, part) for part in ("target", "fields"))
        if not isinstance(fields.value, list) or not fields.value:
            raise self.wrong(fields, f"{where}.fields must be a list of fields")
        return Target(
            self._parse_text(target, f"{where}.target"), self._parse_texts(fields.value, f"{where}.fields")
        )

    def _require_member(
        self, members: Mapping[str, YamlValue], node: YamlValue, where: str, name: str
    ) -> YamlValue:
        if name not in members:
            raise self.wrong(node, f"{name} is missing in {where}")
        return members[name]

    def _parse_texts(self, node: Sequence[YamlValue], where: str) -> tuple[str, ...]:
        return tuple(self._parse_text(one, where) for one in node)

    def _parse_text(self, node: YamlValue, where: str) -> str:
        if not isinstance(node.value, str) or not node.value.strip():
            raise self.wrong(node, f"{where} must be a text")
        return node.value


_AT_ONCE = 1024
"""Records that are read before their texts are sent."""
_BYTES_AT_ONCE = 16 * 2**20

Fields = dict[str, Raw]


class Mode(StrEnum):
    """What happens to the records that are selected."""

    FILL_MISSING = "fill_missing"
    REEMBED_SELECTED = "reembed_selected"
    REEMBED_ALL = "reembed_all"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Selector:
    """Records of one type, or of any, with a value in a field."""

    field: str
    value: str
    type: str | None = None

    @classmethod
    def parse(cls, text: str) -> Selector:
        """A selector as it is written: `field=value` or `Type:field=value`."""
        before, sign, value = text.partition("=")
        owner, colon, name = before.rpartition(":")
        if not sign or not name.strip() or (colon and not owner.strip()):
            raise BadRequest(
                f"'{shorten_legibly(text)}' selects nothing", remedy="write field=value or Type:field=value"
            )
        return cls(name.strip(), value.strip(), owner.strip() or None)

    def covers(self, type_name: str, fields: Fields) -> bool:
        """Whether a record is meant."""
        if self.type not in (None, type_name) or self.field not in fields:
            return False
        return _plain_text(fields[self.field]) == self.value


@dataclass(frozen=True, slots=True)
class LinesRequest:
    """Which file becomes which, and how."""

    input: Path
    output: Path
    recipe: Recipe
    mode: Mode = Mode.FILL_MISSING
    types: tuple[str, ...] = ()
    selectors: tuple[Selector, ...] = ()

    def __post_init__(self) -> None:
        """A type that is never embedded is a name that was misspelt."""
        for named in (*self.types, *(one.type for one in self.selectors)):
            if named is not None and named not in self.recipe.types:
                known = ", ".join(self.recipe.types)
                raise BadRequest(
                    f"no vector is asked for in '{shorten_legibly(named)}'", remedy=f"name one of {known}"
                )

    def covers(self, type_name: str, fields: Fields) -> bool:
        """Whether a record is selected."""
        if self.types and type_name not in self.types:
            return False
        return not self.selectors or any(one.covers(type_name, fields) for one in self.selectors)


@dataclass(slots=True)
class LinesResult:
    """What became of the records of a file."""

    records: int = 0
    selected: int = 0
    embedded: int = 0
    cleaned: int = 0
    refused: int = 0
    refusals: list[tuple[int, str]] = field(default_factory=list)
    """The first of them: the line and the reason."""


@dataclass(frozen=True, slots=True)
class _Record:
    """A line on its way; `due` is where its vector is to go, if it is to get one."""

    number: int
    line: bytes
    root: Fields = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)
    due: Target | None = None
    text: str = ""


def embed_lines(request: LinesRequest, embedder: Embedder | None) -> LinesResult:
    """Write the records of a file with their vectors, or without them; `embedder` is None for the latter."""
    run = _Run(request, embedder, LinesResult())
    try:
        require_output(request.output)
        size = request.input.stat().st_size
        _make_folder(request.output.parent)
        with (
            request.input.open("rb") as source,
            new_file(request.output, overwrite=True) as temporary,
            temporary.open("wb") as sink,
            stage("embed", size=size) as progress,
        ):
            for records in run.groups(source):
                run.write(records, sink, progress)
    except OSError as failure:
        name = failure.filename or request.input
        raise BadRequest(f"cannot read '{name}': {failure.strerror}", remedy="check the path") from failure
    return run.result


def _make_folder(at: Path) -> None:
    try:
        at.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise BadRequest(
            f"cannot write to '{at}': {failure.strerror}", remedy="name a file in a folder"
        ) from failure


@dataclass(frozen=True, slots=True)
class _Run:
    request: LinesRequest
    embedder: Embedder | None
    result: LinesResult

    def groups(self, source: BinaryIO) -> Iterator[list[_Record]]:
        """The lines that are not empty, some at a time."""
        group: list[_Record] = []
        held = 0
        for number, read in enumerate(source, 1):
            line = read.strip()
            if not line:
                continue
            group.append(self._parse_record(number, line))
            held += len(line)
            if len(group) == _AT_ONCE or held > _BYTES_AT_ONCE:
                yield group
                group, held = [], 0
        yield group

    def write(self, records: Sequence[_Record], sink: BinaryIO, progress: Stage) -> None:
        """The records with what they are to get."""
        due = [one for one in records if one.due is not None]
        vectors = dict(zip((one.number for one in due), self._embed_records(due), strict=True))
        for one in records:
            sink.write(self._render_line(one, vectors.get(one.number)) + b"\n")
        progress.advance(rows=len(records), size=sum(len(one.line) + 1 for one in records))

    def _parse_record(self, number: int, line: bytes) -> _Record:
        self.result.records += 1
        try:
            return self._looked_at(number, line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
            # A value is read when it is asked for; an unused one stays as it is.
            raise BadRequest(f"line {number}: a value cannot be read: {wrong}") from wrong

    def _looked_at(self, number: int, line: bytes) -> _Record:
        root = _parse_members(number, line)
        if "type" not in root:
            return _Record(number, line)
        type_name = _plain_text(root["type"])
        fields = _parse_members(number, root.get("data", Raw(b"{}")), "data")
        if not self.request.covers(type_name, fields):
            return _Record(number, line)
        self.result.selected += 1
        target = self.request.recipe.types.get(type_name)
        if target is None or not self._is_due(target, fields):
            return _Record(number, line)
        _refuse_duplicates(number, line)
        return _Record(number, line, root, fields, target, _text_of_record(type_name, target, fields))

    def _is_due(self, target: Target, fields: Fields) -> bool:
        if self.request.mode is Mode.CLEAN:
            return target.target in fields
        if self.request.mode is Mode.FILL_MISSING and _has_vector(fields.get(target.target)):
            return False
        return any(_plain_text(fields[name]) for name in target.fields if name in fields)

    def _embed_records(self, due: Sequence[_Record]) -> Iterator[Vector | str | None]:
        if self.embedder is None:
            return iter([None] * len(due))
        texts = [one.text for one in due]
        return embed_each(self.embedder, texts, self.request.recipe.dimension)

    def _render_line(self, record: _Record, vector: Vector | str | None) -> bytes:
        if record.due is None:
            return record.line
        if isinstance(vector, str):
            self._refuse_line(record.number, vector)
            return record.line
        name = record.due.target
        if vector is None:
            self.result.cleaned += 1
            fields: Mapping[str, Any] = {key: value for key, value in record.fields.items() if key != name}
        else:
            self.result.embedded += 1
            # As short as numbers of 32 bits can be written, and the same when they are read.
            fields = {**record.fields, name: [float(str(number)) for number in vector]}
        return msgspec.json.encode({**record.root, "data": fields})

    def _refuse_line(self, number: int, reason: str) -> None:
        self.result.refused += 1
        if len(self.result.refusals) < MAX_REPORTED_REFUSALS:
            self.result.refusals.append((number, reason))


# --- records -------------------------------------------------------------------------------------


def _parse_members(number: int, text: bytes | Raw, what: str = "a record") -> Fields:
    """The members of an object, each as it is written."""
    try:
        return msgspec.json.decode(text, type=Fields)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise BadRequest(f"line {number}: {what} must be an object of JSON: {wrong}") from wrong


def _refuse_duplicates(number: int, line: bytes) -> None:
    """A member that is there twice would be there once in the new file."""

    def once(members: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in members]
        if len(set(names)) < len(names):
            repeated = next(name for name in names if names.count(name) > 1)
            raise BadRequest(f"line {number}: duplicate JSON member '{shorten_legibly(repeated)}'")

    # Numbers are not asked for, and some have more digits than Python reads.
    json.loads(line, object_pairs_hook=once, parse_int=len, parse_float=len)


def _has_vector(value: Raw | None) -> bool:
    return value is not None and msgspec.json.decode(value) not in (None, [])


def _text_of_record(type_name: str, target: Target, fields: Fields) -> str:
    """What stands for a record: its type, and each of its fields that has a value."""
    values = [(name, _plain_text(fields[name])) for name in target.fields if name in fields]
    return "\n".join([f"type: {type_name}", *(f"{name}: {value}" for name, value in values if value)])


def _plain_text(value: Raw) -> str:
    """A value as text: null is nothing, the items of a list stand side by side, numbers are as written."""
    written = bytes(value).strip()
    if written == b"null":
        return ""
    if written.startswith(b'"'):
        return msgspec.json.decode(written, type=str).strip()
    if written.startswith(b"["):
        items = map(_plain_text, msgspec.json.decode(written, type=list[Raw]))
        return ", ".join(item for item in items if item)
    return written.decode()
