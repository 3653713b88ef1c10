"""YAML and JSON texts as plain values that know their lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import BadRequest
from omnigraph.lang.values import legible

_TAG = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class Told:
    """A value and the line it stands on; members and items are `Told` as well."""

    value: Any
    """A text, number, Boolean, None, a dict by text, or a list."""
    line: int | None = None

    def plain(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {name: member.plain() for name, member in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value


def told(value: Any) -> Told:
    """Plain values of Python, which have no lines."""
    if isinstance(value, dict):
        return Told({name: told(member) for name, member in value.items()})
    if isinstance(value, list | tuple):
        return Told([told(item) for item in value])
    return Told(value)


def read_yaml(text: str, name: str) -> Told:
    """The one document of a text; a name that a mapping has twice is an error."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as wrong:
        line = wrong.problem_mark.line + 1 if wrong.problem_mark is not None else None
        raise refusal(name, line, wrong.problem or "not YAML") from None
    except YAMLError as wrong:
        raise refusal(name, None, str(wrong).partition("\n")[0]) from None
    return Told(None) if node is None else _told(node, name, ())


def refusal(name: str, line: int | None, reason: str, remedy: str | None = None) -> BadRequest:
    """A mapping that cannot be used, with the place of the mistake."""
    place = name if line is None else f"{name}:{line}"
    return BadRequest(f"{place}: {reason}", remedy=remedy)


def _told(node: Any, name: str, above: tuple[int, ...]) -> Told:
    line = node.start_mark.line + 1
    if id(node) in above:
        raise refusal(name, line, "a value must not hold itself")
    above = (*above, id(node))
    match node.id:
        case "mapping":
            return Told(dict(_members(node, name, above)), line)
        case "sequence":
            return Told([_told(item, name, above) for item in node.value], line)
    return Told(_scalar(node, name, line), line)


def _members(node: Any, name: str, above: tuple[int, ...]) -> Iterator[tuple[str, Told]]:
    seen: set[str] = set()
    for key, member in node.value:
        line = key.start_mark.line + 1
        if key.id != "scalar":
            raise refusal(name, line, "a name must be a text")
        if key.value in seen:
            raise refusal(name, line, f"'{legible(key.value)}' appears twice")
        seen.add(key.value)
        yield key.value, _told(member, name, above)


def _scalar(node: Any, name: str, line: int) -> Any:
    """A value as JSON has it; dates stay the texts they are."""
    text, kind = node.value, str(node.tag).removeprefix(_TAG)
    match kind:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int" | "float":
            return _number(text, kind, name, line)
        case "str" | "timestamp":
            return text
    raise refusal(name, line, f"'{legible(str(node.tag))}' is not known here")


def _number(text: str, kind: str, name: str, line: int) -> int | float:
    try:
        return int(text) if kind == "int" else float(text)
    except ValueError:
        raise refusal(
            name, line, f"'{legible(text)}' is no number; write it in quotes if it is a text"
        ) from None
