"""What a command found out about a deployment: each finding has a code, a place and one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from enum import StrEnum
from typing import Any, NoReturn

from omnigraph.cluster.codes import CODES
from omnigraph.deferred_dataclass import dataclass
from omnigraph.diagnostics import printable
from omnigraph.errors import CompileError, OmnigraphError


class Severity(StrEnum):
    """Whether a finding makes the command fail."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a file a finding is."""

    file: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding; `path` is a member of the configuration, an address, or a stored object."""

    code: str
    severity: Severity
    path: str
    message: str
    place: Place | None = None

    def to_json(self) -> dict[str, Any]:
        """The finding as a script reads it."""
        found: dict[str, Any] = {
            "code": self.code,
            "severity": str(self.severity),
            "path": self.path,
            "message": self.message,
        }
        if self.place is not None:
            place = {"file": self.place.file, "line": self.place.line, "column": self.place.column}
            found |= {name: value for name, value in place.items() if value is not None}
        return found

    def __str__(self) -> str:
        label = "ERROR" if self.severity is Severity.ERROR else "WARN "
        at = "" if self.place is None else f" ({self.place})"
        return f"{label} {self.code} {self.path}{at}: {self.message}"


class Stopped(Exception):
    """A finding after which a command does nothing more."""

    def __init__(self, found: Diagnostic) -> None:
        super().__init__(found.message)
        self.found = found


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings of one command, in the order they were made."""

    found: list[Diagnostic] = field(default_factory=list)

    def add(
        self, code: str, path: str, message: str, place: Place | None = None, severity: Severity | None = None
    ) -> None:
        """Note a finding; its code says how severe it is, where the caller does not."""
        self.found.append(_new(code, path, message, place, severity))

    def stop(self, code: str, path: str, message: str, place: Place | None = None) -> NoReturn:
        """End the command with an error, inside `stoppable`."""
        raise stopped(code, path, message, place)

    @contextmanager
    def stoppable(self) -> Iterator[None]:
        """Turn the end of a command, or a failure of its storage, into a finding."""
        try:
            yield
        except Stopped as end:
            self.found.append(end.found)
        except OmnigraphError as error:
            self.add("storage_failure", _uri_of(error), words(error))

    @property
    def ok(self) -> bool:
        """Whether nothing is an error."""
        return not any(one.severity is Severity.ERROR for one in self.found)

    def has(self, code: str) -> bool:
        """Whether there is a finding with this code."""
        return any(one.code == code for one in self.found)

    def to_json(self) -> list[dict[str, Any]]:
        """The findings as a script reads them."""
        return [one.to_json() for one in self.found]


def stopped(code: str, path: str, message: str, place: Place | None = None) -> Stopped:
    """Return the end of a command by an error."""
    return Stopped(_new(code, path, message, place, Severity.ERROR))


def words(error: OmnigraphError) -> str:
    """Return an error with its remedy in one line."""
    return error.message if error.remedy is None else f"{error.message} ({error.remedy})"


def _uri_of(error: OmnigraphError) -> str:
    return str(vars(error).get("uri") or "storage")


def _new(code: str, path: str, message: str, place: Place | None, severity: Severity | None) -> Diagnostic:
    return Diagnostic(code, severity or Severity(CODES[code].severity), path, printable(message), place)


def place_of(error: OmnigraphError) -> Place | None:
    """Return the place in a file that an error names."""
    facts: Mapping[str, Any] = vars(error)
    file = facts.get("file")
    return None if file is None else Place(str(file), facts.get("line"), facts.get("column"))


def sentences(error: OmnigraphError) -> Iterable[tuple[str, Place | None]]:
    """Return each mistake that an error holds, with its place."""
    if isinstance(error, CompileError):
        for one in error.diagnostics:
            place = None if one.source_name is None else Place(one.source_name, one.line, one.column)
            yield one.message, place
        return
    violations: Iterable[OmnigraphError] = getattr(error, "violations", ()) or (error,)
    for wrong in violations:
        at = place_of(wrong)
        # The place is a fact of its own here.
        yield wrong.message.removeprefix(f"{at}: "), at
