"""Strict reading of YAML members: unknown ones are rejected, and every error has its line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest, PipelineFileMissing, PipelineInvalid
from omnigraph.lang.values import shorten_legibly
from omnigraph.pipeline.declared.declaration import Place
from omnigraph.yaml_text import YamlValue, read_yaml

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
"""A name that is an identifier of SQL as it stands."""

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
"""The id of a resource, such as a pipeline or the graph of a cluster."""

Choice = TypeVar("Choice", bound=StrEnum)
Problem = type[PipelineInvalid]


def build_problem(kind: Problem, place: Place, message: str, remedy: str | None = None) -> PipelineInvalid:
    """Return a problem with its place."""
    error = kind(message, file=place.file or None, line=place.line, remedy=remedy)
    error.column = place.column
    return error


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a file, with the path that leads to it and its place."""

    value: YamlValue
    path: str
    file: str

    @property
    def place(self) -> Place:
        """Where it is written."""
        return Place(self.file, self.value.line, self.value.column)

    def refuse(self, reason: str, remedy: str | None = None, problem: Problem = PipelineInvalid) -> NoReturn:
        """Fail, naming the place."""
        raise build_problem(problem, self.place, f"`{self.path}` {reason}", remedy)

    def child(self, name: str | int, value: YamlValue) -> Node:
        """A member or an item."""
        path = f"{self.path}[{name}]" if isinstance(name, int) else f"{self.path}.{name}".lstrip(".")
        return Node(value, path, self.file)

    def object(self) -> dict[str, Node]:
        """The members of an object, whatever their names."""
        if not isinstance(self.value.value, dict):
            self.refuse("must be an object")
        return {name: self.child(shorten_legibly(name), member) for name, member in self.value.value.items()}

    def members(self, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Node]:
        """The members of an object that may have these alone."""
        found, allowed = self.object(), sorted(known)
        for name, member in found.items():
            if name not in allowed:
                member.refuse("is not known here", f"it may be: {', '.join(allowed)}")
        for name in required:
            if name not in found:
                self.refuse(f"needs `{name}`")
        return found

    def items(self) -> list[Node]:
        """The items of a list."""
        if not isinstance(self.value.value, list):
            self.refuse("must be a list")
        return [self.child(number, item) for number, item in enumerate(self.value.value)]

    def text(self) -> str:
        """A text that is not empty."""
        if not isinstance(self.value.value, str) or not self.value.value.strip():
            self.refuse("must be a text")
        return self.value.value

    def texts(self) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(item.text() for item in self.items())

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """An object of texts."""
        return tuple((name, member.text()) for name, member in self.object().items())

    def name(self) -> str:
        """A text that is a name."""
        text = self.text()
        if not NAME.fullmatch(text):
            self.refuse(f"must be a name of letters, digits and '_', not '{shorten_legibly(text)}'")
        return text

    def identifier(self) -> str:
        """A text that is the id of a resource."""
        text = self.text()
        if not IDENTIFIER.fullmatch(text):
            self.refuse(f"must be an id of letters, digits, '_' and '-', not '{shorten_legibly(text)}'")
        return text

    def choice(self, kind: type[Choice]) -> Choice:
        """One of some words."""
        if self.value.value not in list(kind):
            self.refuse(f"must be one of: {', '.join(kind)}")
        return kind(self.value.value)


@dataclass(slots=True)
class Problems:
    """The problems so far; each part of a file is read to its first mistake."""

    found: list[PipelineInvalid] = field(default_factory=list)

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Record a problem inside the block, and continue after it."""
        try:
            yield
        except PipelineInvalid as problem:
            self.found.extend(problem.violations or (problem,))

    def read_each(self, nodes: Iterable[Node], read: Callable[[Node], Any]) -> list[Any]:
        """Return the values of the valid nodes."""
        values: list[Any] = []
        for node in nodes:
            with self.collect():
                values.append(read(node))
        return values

    def raise_if_any(self) -> None:
        """Fail if there is a problem."""
        if self.found:
            raise PipelineInvalid.of(self.found)


def read_document(path: Path, shown: str, asked: Node | None = None) -> Node:
    """The YAML document in a file."""
    return parse_document(read_text(path, shown, asked), shown)


def parse_document(text: str, shown: str) -> Node:
    """The YAML document in a text."""
    try:
        return Node(read_yaml(text, shown), "", shown)
    except PipelineInvalid:
        raise
    except BadRequest as wrong:
        raise PipelineInvalid(wrong.message, remedy=wrong.remedy) from None


def read_text(path: Path, shown: str, asked: Node | None = None) -> str:
    """The text of a file that the user, or a part of a file, names."""
    place = Place("") if asked is None else asked.place
    try:
        return path.read_text(encoding="utf-8")
    except OSError as failure:
        message = f"cannot read '{shown}': {failure.strerror}"
        raise build_problem(PipelineFileMissing, place, message, "check the path") from failure
    except UnicodeDecodeError:
        raise build_problem(PipelineInvalid, place, f"'{shown}' is not UTF-8") from None
