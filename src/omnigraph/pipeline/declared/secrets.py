"""`${NAME}`: values that stand in the environment, and never in a file, a record or a message."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

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
    """Looks references up, and remembers what it found, to take it out of texts again."""

    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    _found: dict[str, str] = field(default_factory=dict, repr=False)

    def resolved(self, text: str, place: Place) -> str:
        """The text with the values behind its references."""

        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in self.environment:
                raise SourceSecretMissing(
                    f"'{name}' is not set",
                    file=place.file,
                    line=place.line,
                    remedy=f"set {name} in the environment",
                )
            found = self.environment[name]
            if found:
                self._found[found] = name
            return found

        return REFERENCE.sub(value, text)

    def redacted(self, text: str) -> str:
        """The text with references where values were."""
        for value in sorted(self._found, key=len, reverse=True):
            text = text.replace(value, f"${{{self._found[value]}}}")
        return text
