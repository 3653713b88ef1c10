"""Options of a local graph that a server decides about, so a call that sets them is refused."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.errors import BadRequest


def require_known(kind: type, options: Mapping[str, object]) -> None:
    """Refuse keywords that are not among the options of a call, as Python does for named parameters."""
    known = kind.__annotations__.keys() | getattr(kind, "__optional_keys__", frozenset())
    for name in options:
        if name not in known:
            raise TypeError(f"unexpected keyword argument '{name}'")


def refuse_actor(actor: str | None) -> None:
    """Refuse an actor: a server knows the caller by its token, and no caller writes as another."""
    if actor is not None:
        raise BadRequest(
            f"'{actor}' cannot be named as the actor: a server knows it by the token", remedy="leave it out"
        )


def refuse_engine(engine: str) -> None:
    """Refuse Spark: the server does the work in its own process."""
    if engine not in ("auto", "local"):
        raise BadRequest(
            f"a server does not take the engine '{engine}'", remedy="open the storage of the graph to use it"
        )
