"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable

_MOST = 20
"""More names are not listed, and a longer name is not compared."""


def suggest_name(name: str, known: Iterable[str]) -> str | None:
    """Return a hint for an unknown name: the known name most like it, else all names if few."""
    from difflib import get_close_matches  # only mistakes need it

    names = sorted(set(known))  # a node and an edge may share a name
    folded = {one.lower(): one for one in names}
    close = get_close_matches(name.lower(), folded, 1) if len(name) <= _MOST else []
    if close:
        return f"did you mean `{folded[close[0]]}`?"
    return f"it may be: {', '.join(names)}" if 0 < len(names) <= _MOST else None
