"""What can be wrong with a policy."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.errors.internal import InternalError
from omnigraph.errors.request import BadRequest

_MOST = 20
"""More mistakes are counted, not listed."""


class PolicyInvalid(BadRequest):
    """A bundle or test file of a policy is wrong; several mistakes are in `violations`, with their places."""

    code = "policy_invalid"

    def __init__(
        self,
        reason: str,
        *,
        file: str,
        line: int | None = None,
        column: int | None = None,
        remedy: str | None = None,
    ) -> None:
        place = ":".join(str(part) for part in (file, line, column) if part is not None)
        super().__init__(f"{place}: {reason}", remedy=remedy)
        self.reason = reason
        self.file = file
        self.line = line
        self.column = column

    @classmethod
    def of(cls, mistakes: Sequence[PolicyInvalid]) -> PolicyInvalid:
        """One mistake as itself, several as one error that has them all."""
        first = mistakes[0]
        if len(mistakes) == 1:
            return first
        error = cls(
            first.reason,
            file=first.file,
            line=first.line,
            column=first.column,
            remedy="fix the reported mistakes, then validate again",
        )
        error.violations = tuple(mistakes[:_MOST])
        error.total = len(mistakes)
        return error

    violations: tuple[PolicyInvalid, ...] = ()
    total: int = 1


class PolicyFailed(InternalError):
    """Cedar could not decide, or does not take what a bundle compiles to; nothing was allowed."""

    code = "policy_failed"
