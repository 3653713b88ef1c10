"""How columns become properties, as the user says it: a mapping file, entry by entry."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.load.sources.input_files import pattern
from omnigraph.engine.load.sources.item import Format, format_of
from omnigraph.engine.rows.json_columns import parse_column
from omnigraph.errors import BadRequest
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import shorten_legibly
from omnigraph.yaml_text import YamlValue, read_yaml, read_yaml_text, to_yaml_value, yaml_error

EVERYTHING = ("*",)
"""In `drop`: every column that is not named otherwise and no property."""

CAST_TYPES = tuple(scalar for scalar in Scalar if scalar not in (Scalar.VECTOR, Scalar.BLOB))
"""What a column can be cast to."""

EVERY_FILE = ("**/*",)
"""In `files`: all of them."""

ENDS = ("from", "to")


@dataclass(frozen=True, slots=True)
class MappingEntry:
    """What holds for the files of some patterns; without any, columns are taken by their names."""

    files: tuple[str, ...] = ()
    type: str | None = None
    edge: str | None = None
    format: Format | None = None
    columns: tuple[tuple[str, str], ...] = ()
    """Pairs of column and property."""
    key: str | None = None
    """The column of the key property, where the type has one."""
    id: str | None = None
    source: str | None = None
    target: str | None = None
    constants: tuple[tuple[str, Any], ...] = ()
    expressions: tuple[tuple[str, str], ...] = ()
    """Pairs of a property, `id`, `from` or `to`, and an expression of Spark SQL over the columns."""
    drop: tuple[str, ...] = ()
    cast: tuple[tuple[str, Scalar], ...] = ()
    """Pairs of a column and the type that its values are cast to."""
    multiline: bool = True
    delimiter: str | None = None
    """None where it is guessed."""
    header: tuple[str, ...] = ()
    """The names of the columns of a CSV file that has none itself."""
    date_format: str | None = None
    nulls: tuple[str, ...] = ()
    place: int | None = field(default=None, compare=False)
    """The line the entry begins on."""

    def covers(self, path: str) -> bool:
        """Whether a pattern means a file; one that does not begin with `/` may begin at any folder."""
        parts = path.replace(os.sep, "/")
        return any(
            wanted.fullmatch(parts[start:])
            for wanted in map(pattern, self.files)
            for start in (0, *(at + 1 for at, char in enumerate(parts) if char == "/"))
        )


NO_ENTRY = MappingEntry()


@dataclass(frozen=True, slots=True)
class InputMapping:
    """The entries of a mapping file; for each file the first that covers it holds."""

    name: str
    entries: tuple[MappingEntry, ...]

    def entry(self, path: str) -> MappingEntry:
        """What holds for a file."""
        return next((entry for entry in self.entries if entry.covers(path)), NO_ENTRY)

    @property
    def computing(self) -> tuple[MappingEntry, ...]:
        """The entries with values that Spark works out."""
        return tuple(entry for entry in self.entries if entry.expressions)

    def format_of(self, path: str) -> Format | None:
        """The format of a file: as the mapping says, else by its name."""
        return self.entry(path).format or format_of(path)

    def check(self, catalog: Catalog) -> None:
        """Fail when an entry names what the schema does not have."""
        for entry in self.entries:
            _check_entry(entry, catalog, partial(_refuse, self.name, entry.place))


def name_types(mapping: InputMapping | None, types: Sequence[MappingEntry]) -> InputMapping:
    """The mapping of a load whose caller named the types of files; entries without a type take them."""
    if mapping is None:
        return InputMapping("<types>", tuple(types))
    own = [entry for entry in mapping.entries if entry.type is not None or entry.edge is not None]
    untyped = [entry for entry in mapping.entries if entry not in own]
    merged = [
        replace(entry, files=named.files, type=named.type, edge=named.edge)
        for named in types
        for entry in untyped
        if entry.files == EVERY_FILE
    ]
    return InputMapping(mapping.name, (*own, *merged, *types, *untyped))


@dataclass(frozen=True, slots=True)
class MappingText(os.PathLike[str]):
    """A mapping file whose text is at hand, under the name it has elsewhere; a load takes it like a path."""

    name: str
    text: str = field(repr=False)

    def __fspath__(self) -> str:
        return self.name


def read_mapping(at: str | os.PathLike[str]) -> InputMapping:
    """A mapping file: YAML, or JSON."""
    found = read_mapping_text(at)
    return parse_mapping(found.text, found.name)


def read_mapping_text(at: str | os.PathLike[str]) -> MappingText:
    """The text of a mapping file."""
    if isinstance(at, MappingText):
        return at
    path = Path(at)
    try:
        return MappingText(str(path), read_yaml_text(path))
    except OSError as failure:
        raise BadRequest(
            f"cannot read mapping '{path}': {failure.strerror}", remedy="check the path"
        ) from failure
    except UnicodeDecodeError:
        raise BadRequest(f"mapping '{path}' is not UTF-8") from None


def parse_mapping(text: str, name: str = "<mapping>") -> InputMapping:
    """A mapping from its text."""
    return _mapping(read_yaml(text, name), name)


def build_mapping(value: Mapping[str, Any], name: str = "<mapping>") -> InputMapping:
    """A mapping from plain values of the same form."""
    return _mapping(to_yaml_value(dict(value)), name)


def open_mapping(given: str | os.PathLike[str] | Mapping[str, Any]) -> InputMapping:
    """Return a mapping from a file, or from plain values of the same form."""
    return build_mapping(given) if isinstance(given, Mapping) else read_mapping(given)


# --- form ----------------------------------------------------------------------------------------


def _refuse(name: str, line: int | None, reason: str, remedy: str | None = None) -> NoReturn:
    raise yaml_error(name, line, reason, remedy)


def _mapping(document: YamlValue, name: str) -> InputMapping:
    if isinstance(document.value, dict) and document.value.keys() & _READERS.keys():
        # A single entry without a pattern is for everything that is loaded.
        return InputMapping(name, (_entry(document, name, EVERY_FILE),))
    members = _members(document, name, "a mapping", {"version", "inputs"})
    version = members.get("version")
    if version is not None and version.value != 1:
        _refuse(
            name,
            version.line,
            f"version {shorten_legibly(str(version.plain()))} is not known",
            "write `version: 1`",
        )
    inputs = members.get("inputs")
    if inputs is None or not isinstance(inputs.value, list) or not inputs.value:
        _refuse(name, document.line, "a mapping needs `inputs`, a list with at least one entry")
    return InputMapping(name, tuple(_entry(item, name) for item in inputs.value))


def _members(found: YamlValue, name: str, what: str, known: Iterable[str]) -> dict[str, YamlValue]:
    if not isinstance(found.value, dict):
        _refuse(name, found.line, f"{what} must be an object")
    allowed = sorted(known)
    for member, value in found.value.items():
        if member not in allowed:
            reason = f"{what} has no member '{shorten_legibly(str(member))}'"
            _refuse(name, value.line, reason, f"it may have: {', '.join(allowed)}")
    members: dict[str, YamlValue] = found.value
    return members


def _entry(found: YamlValue, name: str, files: tuple[str, ...] = ()) -> MappingEntry:
    members = _members(found, name, "an entry of `inputs`", _READERS)
    values = {
        _FIELDS.get(member, member): _READERS[member](value, name, member)
        for member, value in members.items()
    }
    entry = MappingEntry(**{"files": files, **values}, place=found.line)
    refuse = partial(_refuse, name, found.line)
    if not entry.files:
        refuse("an entry of `inputs` needs `files`, a pattern such as `people/*.csv`")
    if entry.type is not None and entry.edge is not None:
        refuse("an entry has `type` for nodes or `edge` for edges, not both")
    if entry.expressions and entry.type is None and entry.edge is None:
        refuse("an entry with `expressions` needs `type` or `edge`")
    _refuse_twice(entry, refuse)
    return entry


def _refuse_twice(entry: MappingEntry, refuse: Callable[[str], NoReturn]) -> None:
    """What a row gets from two places, and columns that are used for two things."""
    seen: set[str] = set()
    ends = [end for end, column in zip(ENDS, (entry.source, entry.target), strict=True) if column is not None]
    given = [becomes for becomes, _ in (*entry.constants, *entry.expressions)]
    for becomes in (*(becomes for _, becomes in entry.columns), *given, *([ID] if entry.id else []), *ends):
        if becomes in seen:
            refuse(f"'{shorten_legibly(becomes)}' has a value from two places")
        seen.add(becomes)
    columns = [column for column, _ in entry.columns]
    for column in (*columns, entry.key, entry.id, entry.source, entry.target):
        if column is not None and (column in entry.drop or columns.count(column) > 1):
            refuse(f"column '{shorten_legibly(column)}' is used and dropped")


def _text(found: YamlValue, name: str, member: str) -> str:
    if not isinstance(found.value, str) or not found.value:
        _refuse(name, found.line, f"`{member}` must be a text")
    return found.value


def _texts(found: YamlValue, name: str, member: str) -> tuple[str, ...]:
    if isinstance(found.value, list):
        if not all(isinstance(item.value, str) for item in found.value):
            _refuse(name, found.line, f"`{member}` must be a text or a list of texts")
        return tuple(item.value for item in found.value)
    return (_text(found, name, member),)


def _pairs(found: YamlValue, name: str, member: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (each, _text(value, name, f"{member}.{each}")) for each, value in _object(found, name, member)
    )


def _constants(found: YamlValue, name: str, member: str) -> tuple[tuple[str, Any], ...]:
    return tuple((each, value.plain()) for each, value in _object(found, name, member))


def _object(found: YamlValue, name: str, member: str) -> Iterable[tuple[str, YamlValue]]:
    if not isinstance(found.value, dict):
        _refuse(name, found.line, f"`{member}` must be an object")
    return tuple(found.value.items())


def _flag(found: YamlValue, name: str, member: str) -> bool:
    if not isinstance(found.value, bool):
        _refuse(name, found.line, f"`{member}` must be true or false")
    return found.value


def _format(found: YamlValue, name: str, member: str) -> Format:
    text = _text(found, name, member)
    try:
        return Format(text)
    except ValueError:
        reason = f"format '{shorten_legibly(text)}' is not known"
        _refuse(name, found.line, reason, f"choose one of: {', '.join(Format)}")


def _delimiter(found: YamlValue, name: str, member: str) -> str:
    text = _text(found, name, member)
    if len(text) != 1 or not text.isascii() or text in '"\r\n':
        _refuse(name, found.line, "`delimiter` must be one character of ASCII and no quote or line end")
    return text


def _casts(found: YamlValue, name: str, member: str) -> tuple[tuple[str, Scalar], ...]:
    known = {scalar.value: scalar for scalar in CAST_TYPES}
    pairs = _pairs(found, name, member)
    for column, text in pairs:
        if text not in known:
            _refuse(
                name,
                found.line,
                f"`cast.{shorten_legibly(column)}` is no type that a column can be cast to",
                f"it may be: {', '.join(known)}",
            )
    return tuple((column, known[text]) for column, text in pairs)


def _date_format(found: YamlValue, name: str, member: str) -> str:
    text = _text(found, name, member)
    directives = set(re.findall("%(.)", text))
    if not directives or not directives <= _DATE_DIRECTIVES:
        _refuse(
            name,
            found.line,
            f"`date_format` '{shorten_legibly(text)}' is not known",
            "write it like %d.%m.%Y or %m/%d/%Y %H:%M:%S",
        )
    return text


_DATE_DIRECTIVES = frozenset("dmyYHMSbBeIpj%")
_FIELDS = {"from": "source", "to": "target"}
_READERS: dict[str, Callable[[YamlValue, str, str], Any]] = {
    "files": _texts,
    "type": _text,
    "edge": _text,
    "format": _format,
    "columns": _pairs,
    "key": _text,
    "id": _text,
    "from": _text,
    "to": _text,
    "constants": _constants,
    "expressions": _pairs,
    "drop": _texts,
    "cast": _casts,
    "multiline": _flag,
    "delimiter": _delimiter,
    "header": _texts,
    "date_format": _date_format,
    "nulls": _texts,
}


# --- meaning -------------------------------------------------------------------------------------


def _check_entry(entry: MappingEntry, catalog: Catalog, refuse: Callable[..., NoReturn]) -> None:
    owner = _owner(entry, catalog, refuse)
    if owner is None:
        return
    label = f"{'edge' if isinstance(owner, EdgeType) else 'node'} type '{owner.name}'"
    ends = ENDS if isinstance(owner, EdgeType) else ()
    known = f"it has: {', '.join([*owner.properties, *ends])}"
    for _, becomes in entry.columns:
        if becomes not in owner.properties:
            refuse(f"{label} has no property '{shorten_legibly(becomes)}'", known)
    for becomes, _ in (*entry.constants, *entry.expressions):
        if becomes not in owner.properties and becomes not in (*ends, ID):
            refuse(f"{label} has no property '{shorten_legibly(becomes)}'", known)
    _check_ends(entry, owner, label, refuse)
    _check_constants(entry, owner, refuse)


def _owner(
    entry: MappingEntry, catalog: Catalog, refuse: Callable[..., NoReturn]
) -> NodeType | EdgeType | None:
    if entry.type is not None:
        if entry.type not in catalog.nodes:
            refuse(
                f"unknown node type '{shorten_legibly(entry.type)}'",
                f"it may be: {', '.join(sorted(catalog.nodes))}",
            )
        return catalog.nodes[entry.type]
    if entry.edge is None:
        return None
    found = catalog.find_edge(entry.edge)
    if found is None:
        refuse(
            f"unknown edge type '{shorten_legibly(entry.edge)}'",
            f"it may be: {', '.join(sorted(catalog.edges))}",
        )
    return found


def _check_ends(
    entry: MappingEntry, owner: NodeType | EdgeType, label: str, refuse: Callable[..., NoReturn]
) -> None:
    if isinstance(owner, NodeType) and (entry.source is not None or entry.target is not None):
        refuse(f"{label} has no `from` and `to`")
    if entry.key is None:
        return
    if isinstance(owner, EdgeType) or len(owner.key) != 1:
        refuse(
            f"`key` is for a type with one key property, which {label} is not", "name columns in `columns`"
        )
    if owner.key[0] in (becomes for _, becomes in entry.columns):
        refuse(f"'{owner.key[0]}' has a value from two places")


def _check_constants(
    entry: MappingEntry, owner: NodeType | EdgeType, refuse: Callable[..., NoReturn]
) -> None:
    for becomes, value in entry.constants:
        if becomes not in owner.properties or (becomes in ENDS and isinstance(owner, EdgeType)):
            if becomes == ID or not isinstance(value, str):
                refuse(f"constant '{becomes}' must be the id of a node, a text")
        elif owner.properties[becomes].type.scalar is not Scalar.BLOB:
            for reason in parse_column([value], becomes, owner.properties[becomes].type).faults.values():
                refuse(f"constant '{becomes}': {reason}")
