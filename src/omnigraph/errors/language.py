"""Texts that do not compile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from omnigraph.diagnostics import MAX_DIAGNOSTICS, Diagnostic
from omnigraph.errors.base import OmnigraphError


class CompileError(OmnigraphError):
    """A schema or query text is wrong; `diagnostics` has every place, in order."""

    code = "compile_error"
    status = 400
    prefix: ClassVar[str] = "compile error"

    def __init__(self, diagnostics: Sequence[Diagnostic], *, truncated: bool = False) -> None:
        first = diagnostics[0]
        super().__init__(f"{self.prefix}: {first.message}", remedy=first.help)
        self.diagnostics = tuple(diagnostics)
        self.truncated = truncated
        """True when there were more findings than `MAX_DIAGNOSTICS`."""

    def __str__(self) -> str:
        return f"{self.message}\n{self.render()}"

    def render(self) -> str:
        """All diagnostics with their underlined source lines."""
        parts = [diagnostic.render() for diagnostic in self.diagnostics]
        if self.truncated:
            parts.append(f"stopped after {MAX_DIAGNOSTICS} errors")
        return "\n\n".join(parts)


class ParseError(CompileError):
    """The text does not follow the grammar, or breaks a rule about one declaration."""

    code = "parse_error"
    prefix = "parse error"


class CatalogError(CompileError):
    """Declarations that are fine alone do not fit together."""

    code = "catalog_error"
    prefix = "catalog error"


class TypeCheckError(CompileError):
    """A query does not fit the schema."""

    code = "type_error"
    prefix = "type error"


class SchemaIdentityError(OmnigraphError):
    """A desired schema cannot be matched to the accepted one."""

    code = "schema_identity"
    status = 400

    def __init__(self, reason: str, *, entity: str, remedy: str | None = None) -> None:
        super().__init__(f"schema identity resolution failed: {reason}", remedy=remedy)
        self.entity = entity
