"""Strict reading of `cluster.yaml`: each mistake is a finding with its place, and reading goes on."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

from omnigraph.cluster.addresses import is_id
from omnigraph.cluster.config import Located
from omnigraph.cluster.diagnostics import Findings, Place
from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.values import shorten_legibly
from omnigraph.yaml_text import YamlValue

INVALID = "cluster_config_invalid"

Choice = TypeVar("Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of the file and the path that leads to it; after a mistake its readers return nothing."""

    value: YamlValue
    path: str
    file: str
    findings: Findings

    @property
    def place(self) -> Place:
        """Where the value stands."""
        return Place(self.file, self.value.line, self.value.column)

    @property
    def name_place(self) -> Place:
        """Where the name of this member stands."""
        return Place(self.file, *(self.value.name_place or (self.value.line, self.value.column)))

    def report(self, message: str, code: str = INVALID) -> None:
        """Note a mistake in the value."""
        self.findings.add(code, self._shown, message, self.place)

    def report_name(self, message: str, code: str = INVALID) -> None:
        """Note a mistake in the name of this member."""
        self.findings.add(code, self._shown, message, self.name_place)

    @property
    def is_null(self) -> bool:
        """Whether nothing is written here."""
        return self.value.value is None

    def members(self, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Node]:
        """Return the members of an object that may have these alone; null ones are left out."""
        found, allowed = self.object(), tuple(known)
        for name, member in found.items():
            if name not in allowed:
                member.report_name(f"`{shorten_legibly(name)}` is not known here: {', '.join(allowed)}")
        present = {name: member for name, member in found.items() if name in allowed and not member.is_null}
        for name in required:
            if name not in present:
                self.report(f"`{name}` is required")
        return present

    def object(self) -> dict[str, Node]:
        """Return the members of an object, whatever their names."""
        if not isinstance(self.value.value, dict):
            self.report("must be an object")
            return {}
        path = f"{self.path}." if self.path else ""
        return {
            name: Node(member, f"{path}{shorten_legibly(name)}", self.file, self.findings)
            for name, member in self.value.value.items()
        }

    def resources(self) -> dict[str, Node]:
        """Return the members of an object whose names are ids of resources."""
        found = {}
        for name, member in self.object().items():
            if is_id(name):
                found[name] = member
            else:
                member.report_name(
                    f"'{shorten_legibly(name)}' is no id: use up to 200 letters, digits, '_' and '-', "
                    "and begin with a letter or '_'",
                    "invalid_resource_id",
                )
        return found

    def items(self) -> list[Node]:
        """Return the items of a list."""
        if not isinstance(self.value.value, list):
            self.report("must be a list")
            return []
        return [
            Node(item, f"{self.path}[{number}]", self.file, self.findings)
            for number, item in enumerate(self.value.value)
        ]

    def text(self) -> str | None:
        """Return a text that is not blank."""
        found = self.value.value
        if not isinstance(found, str):
            self.report("must be a text")
        elif not found.strip():
            self.report("must not be blank")
        elif not found.isprintable():
            self.report("has characters that do not print")
        else:
            return found.strip()
        return None

    def located(self) -> Located | None:
        """Return a text with its place."""
        text = self.text()
        return None if text is None else Located(text, self.path, self.place)

    def choice(self, kind: type[Choice]) -> Choice | None:
        """Return one of some words."""
        if self.value.value not in list(kind):
            self.report(f"must be one of: {', '.join(kind)}")
            return None
        return kind(self.value.value)

    def flag(self) -> bool | None:
        """Return true or false."""
        if not isinstance(self.value.value, bool):
            self.report("must be true or false")
            return None
        return self.value.value

    @property
    def _shown(self) -> str:
        return self.path or self.file
