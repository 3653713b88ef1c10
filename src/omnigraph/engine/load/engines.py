"""Who may carry out loads besides this process.

Whatever is installed makes itself known under the entry point group `omnigraph.engines`: a function from how
much there is to read to the engine that should do it, or None when this process should.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Literal, Protocol

from omnigraph.engine.load.run import Engine
from omnigraph.errors import BadRequest

GROUP = "omnigraph.engines"
EngineName = Literal["auto", "local", "spark"]


class Choose(Protocol):
    """An engine for so many bytes of input; `asked` when the user named it, and it is not its own choice."""

    def __call__(self, size: int, *, asked: bool) -> Engine | None: ...


def engine_for(name: str, size: int, at_hand: Engine | None = None) -> Engine | None:
    """The engine that a load of so many bytes runs on; None means this process.

    One that is `at_hand`, because the rows come from it, is taken unless another is asked for.
    """
    if name == "local":
        return None
    if at_hand is not None and name in ("auto", at_hand.runner.name):
        return at_hand
    known = _known()
    if name == "auto":
        chosen = (choose(size, asked=False) for choose in known.values())
        return next((engine for engine in chosen if engine is not None), None)
    if name not in known:
        raise BadRequest(
            f"there is no engine '{name}'", remedy=f"choose one of: auto, local, {', '.join(known)}"
        )
    return known[name](size, asked=True)


@cache
def _known() -> dict[str, Choose]:
    return {found.name: found.load() for found in sorted(entry_points(group=GROUP), key=lambda one: one.name)}
