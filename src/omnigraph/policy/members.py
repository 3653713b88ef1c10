"""Strict reading of YAML members: every mistake is reported with its place, and reading continues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TypeVar

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import PolicyInvalid
from omnigraph.lang.values import shorten_legibly
from omnigraph.yaml_text import YamlValue, read_yaml, read_yaml_text

_SHOWN = 20

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Mistakes:
    """What is wrong with one file."""

    file: str
    found: list[PolicyInvalid] = field(default_factory=list)

    def raise_if_any(self) -> None:
        """Fail with all mistakes, in the order of the file."""
        if self.found:
            raise PolicyInvalid.of(sorted(self.found, key=lambda one: (one.line or 0, one.column or 0)))


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a file and the path that leads to it. After a mistake its readers return something empty."""

    value: YamlValue
    path: str
    mistakes: Mistakes

    def report(self, reason: str, remedy: str | None = None) -> None:
        """Note a mistake in the value."""
        self._add(reason, remedy, self.value.line, self.value.column)

    def report_name(self, reason: str, remedy: str | None = None) -> None:
        """Note a mistake in the name of this member."""
        self._add(reason, remedy, *(self.value.name_place or (self.value.line, self.value.column)))

    def members(self, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Node]:
        """The members of an object that may have these alone."""
        found, allowed = self.object(), tuple(known)
        if found is None:
            return {}
        for name, member in found.items():
            if name not in allowed:
                member.report_name(f"`{member.path}` is not known here", list_choices(allowed))
        for name in required:
            if name not in found:
                self.report(f"{self._shown} needs `{name}`")
        return {name: member for name, member in found.items() if name in allowed}

    def object(self) -> dict[str, Node] | None:
        """The members of an object, whatever their names; None after a mistake."""
        if not isinstance(self.value.value, dict):
            self.report(f"{self._shown} must be an object")
            return None
        path = f"{self.path}." if self.path else ""
        return {
            name: Node(member, f"{path}{shorten_legibly(name)}", self.mistakes)
            for name, member in self.value.value.items()
        }

    def items(self) -> list[Node]:
        """The items of a list."""
        if not isinstance(self.value.value, list):
            self.report(f"{self._shown} must be a list")
            return []
        return [
            Node(item, f"{self.path}[{number}]", self.mistakes)
            for number, item in enumerate(self.value.value)
        ]

    def text(self) -> str:
        """A text without the spaces around it; empty after a mistake."""
        found = self.value.value
        if not isinstance(found, str):
            quoted = "" if found is None or isinstance(found, dict | list) else "; put it in quotes"
            self.report(f"{self._shown} must be a text{quoted}")
            return ""
        if not found.strip():
            self.report(f"{self._shown} must not be blank")
        elif not found.isprintable():
            self.report(f"{self._shown} has characters that do not print")
        return found.strip()

    def choice(self, kind: type[Choice]) -> Choice | None:
        """One of some words; None after a mistake."""
        if self.value.value not in list(kind):
            self.report(f"{self._shown} must be one of: {', '.join(kind)}")
            return None
        return kind(self.value.value)

    def require_version(self) -> None:
        """Note a mistake unless this is the number 1."""
        if self.value.value != 1 or isinstance(self.value.value, bool):
            self.report(f"{self._shown} must be 1")

    @property
    def _shown(self) -> str:
        return f"`{self.path}`" if self.path else "the file"

    def _add(self, reason: str, remedy: str | None, line: int | None, column: int | None) -> None:
        found = PolicyInvalid(reason, file=self.mistakes.file, line=line, column=column, remedy=remedy)
        self.mistakes.found.append(found)


def list_choices(names: Iterable[str]) -> str:
    """Return the hint after an unknown name: what it may be."""
    shown = list(islice(names, _SHOWN + 1))
    more = ", ..." if len(shown) > _SHOWN else ""
    return f"it may be: {', '.join(map(shorten_legibly, shown[:_SHOWN]))}{more}"


def read_file(path: Path) -> str:
    """Return the text of a file that the caller names."""
    try:
        return read_yaml_text(path)
    except OSError as failure:
        raise PolicyInvalid(
            f"cannot be read: {failure.strerror}", file=str(path), remedy="check the path"
        ) from failure
    except UnicodeDecodeError:
        raise PolicyInvalid("is not UTF-8", file=str(path)) from None


def parse_document(text: str, name: str) -> Node:
    """Return the one document of a text; `YamlInvalid` if it is not YAML."""
    return Node(read_yaml(text, name), "", Mistakes(name))
