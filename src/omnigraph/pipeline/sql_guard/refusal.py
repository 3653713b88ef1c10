"""Why a statement is refused."""

from __future__ import annotations


class NotPermitted(ValueError):
    """A statement calls or reads what it may not; the message names it."""


def refused_function(name: str) -> NotPermitted:
    """Return the refusal of a function."""
    return NotPermitted(f"function '{name}' is not permitted")


def refused_relation(name: str) -> NotPermitted:
    """Return the refusal of a relation."""
    return NotPermitted(f"'{name}' is no source and no earlier view of this pipeline")


def refused_part(name: str) -> NotPermitted:
    """Return the refusal of a part of SQL that is neither."""
    return NotPermitted(f"{name} is not permitted")


def refuse_substitution(sql: str) -> None:
    """Fail if Spark would replace a part of a text before parsing, as by a variable of its environment."""
    if "${" in sql:
        raise NotPermitted("`${...}` is not permitted")
