"""`${NAME}`: values from the environment, which never appear in a file, a record or a message."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import SourceSecretMissing
from omnigraph.pipeline.declared.declaration import Place

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
SECRET_MEMBERS = frozenset({"user", "password", "token", "access_key", "secret_key"})
"""Members that must be references."""


def is_reference(text: str) -> bool:
    """Whether a text is nothing but a reference."""
    return REFERENCE.fullmatch(text) is not None


@dataclass(slots=True)
class Secrets:
    """Resolves references, and remembers the values to redact them from texts."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _found: dict[str, str] = field(default_factory=dict, repr=False)

    def resolve(self, text: str, place: Place | None) -> str:
        """Replace the references in a text, which may be in a file, by their values."""

        def replace_reference(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in self.environment:
                raise SourceSecretMissing(
                    f"'{name}' is not set",
                    file=None if place is None else place.file,
                    line=None if place is None else place.line,
                    remedy=f"set {name} in the environment",
                )
            found = self.environment[name]
            if found:
                self._found[found] = name
            return found

        return REFERENCE.sub(replace_reference, text)

    def list_values(self) -> dict[str, str]:
        """Return the reference of each value that was resolved."""
        return {value: f"${{{name}}}" for value, name in self._found.items()}

    def redact(self, text: str) -> str:
        """Replace the values in a text by their references."""
        return replace_values(text, self.list_values())


def replace_values(text: str, values: Mapping[str, str]) -> str:
    """Replace each value in a text, the longest first."""
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, values[value])
    return text
