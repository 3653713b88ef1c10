"""Parse YAML and JSON into plain values with line numbers: the only module that parses YAML."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest, YamlInvalid
from omnigraph.lang.values import shorten_legibly

MAX_CHARACTERS = 1 << 20
MAX_NODES = 50_000
MAX_DEPTH = 64

_TAG = "tag:yaml.org,2002:"
_PLAIN = (None, "!", f"{_TAG}map", f"{_TAG}seq")


@dataclass(frozen=True, slots=True)
class YamlValue:
    """A value and the place it stands at; members and items are `YamlValue`s as well."""

    value: Any
    """A text, number, Boolean, None, a dict by text, or a list."""
    line: int | None = None
    column: int | None = None
    name_place: tuple[int, int] | None = None
    """Line and column of the name of a member."""

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {name: member.plain() for name, member in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value


def to_yaml_value(value: Any) -> YamlValue:
    """Wrap plain Python values, which have no lines."""
    if isinstance(value, dict):
        return YamlValue({name: to_yaml_value(member) for name, member in value.items()})
    if isinstance(value, list | tuple):
        return YamlValue([to_yaml_value(item) for item in value])
    return YamlValue(value)


def read_yaml_text(path: Path) -> str:
    """Return the text of a file, as far as `read_yaml` looks at it."""
    with path.open(encoding="utf-8") as file:
        return file.read(MAX_CHARACTERS + 1)


def read_yaml(text: str, name: str) -> YamlValue:
    """Parse the single document of a text; a name that a mapping has twice is an error, and so is an alias.

    Values are made from the events of the parser, which neither builds objects nor repeats anything: what a
    text becomes is never larger than the text.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(text) > MAX_CHARACTERS:
        raise YamlInvalid(f"more than {MAX_CHARACTERS} characters of YAML", file=name)
    yaml = YAML(typ="safe", pure=True)
    try:
        return _Reader(yaml.parse(text), yaml.resolver, name).document()
    except MarkedYAMLError as wrong:
        mark = wrong.problem_mark
        line, column = (None, None) if mark is None else (mark.line + 1, mark.column + 1)
        raise YamlInvalid(wrong.problem or "not YAML", file=name, line=line, column=column) from None
    except YAMLError as wrong:
        raise YamlInvalid(str(wrong).partition("\n")[0], file=name) from None


def yaml_error(name: str, line: int | None, reason: str, remedy: str | None = None) -> BadRequest:
    """Return the error for an invalid mapping, with its file and line."""
    place = name if line is None else f"{name}:{line}"
    return BadRequest(f"{place}: {reason}", remedy=remedy)


class _Reader:
    """Makes values of the events of a YAML parser."""

    def __init__(self, events: Iterator[Any], resolver: Any, name: str) -> None:
        self._events = events
        self._resolver = resolver
        self._name = name
        self._nodes = 0

    def document(self) -> YamlValue:
        """The one document, or nothing."""
        from ruamel.yaml import events

        next(self._events)
        if isinstance(next(self._events), events.StreamEndEvent):
            return YamlValue(None)
        found = self._value(next(self._events), 0)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, events.StreamEndEvent):
            raise self._wrong(after, "more than one document")
        return found

    def _value(self, event: Any, depth: int, name_place: tuple[int, int] | None = None) -> YamlValue:
        from ruamel.yaml import events

        places = (*_place(event), name_place)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._wrong(event, f"more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise self._wrong(event, f"more than {MAX_DEPTH} levels of nesting")
        if isinstance(event, events.CollectionStartEvent) and event.tag not in _PLAIN:
            raise self._wrong(event, f"'{shorten_legibly(str(event.tag))}' is not known here")
        if isinstance(event, events.MappingStartEvent):
            return YamlValue(dict(self._members(depth)), *places)
        if isinstance(event, events.SequenceStartEvent):
            return YamlValue(list(self._items(depth)), *places)
        if isinstance(event, events.AliasEvent):
            raise self._alias(event)
        return YamlValue(self._scalar(event), *places)

    def _members(self, depth: int) -> Iterator[tuple[str, YamlValue]]:
        from ruamel.yaml import events

        seen: set[str] = set()
        while not isinstance(key := next(self._events), events.MappingEndEvent):
            if isinstance(key, events.AliasEvent):
                raise self._alias(key)
            if not isinstance(key, events.ScalarEvent):
                raise self._wrong(key, "a name must be a text")
            if key.value in seen:
                twice = self._wrong(key, f"'{shorten_legibly(key.value)}' appears twice")
                twice.duplicate_key = shorten_legibly(key.value)
                raise twice
            seen.add(key.value)
            yield key.value, self._value(next(self._events), depth + 1, _place(key))

    def _items(self, depth: int) -> Iterator[YamlValue]:
        from ruamel.yaml import events

        while not isinstance(item := next(self._events), events.SequenceEndEvent):
            yield self._value(item, depth + 1)

    def _scalar(self, event: Any) -> Any:
        """A value as JSON has it; dates stay the texts they are."""
        from ruamel.yaml.nodes import ScalarNode

        text, tag = event.value, event.tag
        if tag is None or tag == "!":
            tag = self._resolver.resolve(ScalarNode, text, event.implicit)
        match kind := str(tag).removeprefix(_TAG):
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "bool":
                raise self._wrong(
                    event, f"'{shorten_legibly(text)}' is ambiguous; write true or false, or quote it"
                )
            case "int" | "float":
                return self._number(event, kind)
            case "str" | "timestamp":
                return text
        raise self._wrong(event, f"'{shorten_legibly(str(tag))}' is not known here")

    def _number(self, event: Any, kind: str) -> int | float:
        try:
            return int(event.value) if kind == "int" else float(event.value)
        except ValueError:
            reason = f"'{shorten_legibly(event.value)}' is no number; write it in quotes if it is a text"
            raise self._wrong(event, reason) from None

    def _alias(self, event: Any) -> YamlInvalid:
        reason = f"'*{shorten_legibly(event.anchor)}' is an alias, which is not allowed"
        return self._wrong(event, reason, remedy="write the value itself")

    def _wrong(self, event: Any, reason: str, remedy: str | None = None) -> YamlInvalid:
        line, column = _place(event)
        return YamlInvalid(reason, file=self._name, line=line, column=column, remedy=remedy)


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1
