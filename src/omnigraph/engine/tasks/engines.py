"""The engines that can run a load besides this process, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol

from omnigraph.engine.tasks.runner import Runner
from omnigraph.errors import BadRequest

EngineName = Literal["auto", "local", "spark"]

SPARK = "spark"
_MODULES = {SPARK: "omnigraph.pipeline.spark_engine"}
"""The module of each engine; it defines `choose` (a `Choose`) and `FRAMES` (a `Frames`)."""


@dataclass(frozen=True, slots=True)
class Engine:
    """Who carries out a load, and why."""

    runner: Runner
    why: str


ChooseEngine = Callable[[int], Engine | None]
"""The engine for so many bytes of input; None means this process."""


class EngineFactory(Protocol):
    """An engine for so many bytes of input; `asked` when the user named it, and it is not its own choice."""

    def __call__(self, size: int, *, asked: bool) -> Engine | None: ...


def select_engine(name: str, size: int, at_hand: Engine | None = None) -> Engine | None:
    """The engine that a load of so many bytes runs on; None means this process.

    One that is `at_hand`, because the rows come from it, is taken unless another is asked for.
    """
    if name == "local":
        return None
    if at_hand is not None and name in ("auto", at_hand.runner.name):
        return at_hand
    if name == "auto":
        chosen = (_chooser(other)(size, asked=False) for other in _MODULES)
        return next((engine for engine in chosen if engine is not None), None)
    if name not in _MODULES:
        raise BadRequest(
            f"there is no engine '{name}'", remedy=f"choose one of: auto, local, {', '.join(_MODULES)}"
        )
    return _chooser(name)(size, asked=True)


def _chooser(name: str) -> EngineFactory:
    choose: EngineFactory = engine_module(name).choose
    return choose


def engine_module(name: str) -> Any:
    """Import the module of an engine, on its first use."""
    # By its path: the pipeline is above the engine, which must not import it, and its packages are optional.
    return import_module(_MODULES[name])
