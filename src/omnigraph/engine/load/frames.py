"""DataFrames of an engine outside of this process, such as Spark's.

Whatever is installed makes itself known under the entry point group `omnigraph.frames`: it makes DataFrames
of a graph, and files of a DataFrame for a load to read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

from omnigraph.engine.load.run import Engine
from omnigraph.engine.load.sources.mapping import InputMapping
from omnigraph.engine.root import Root
from omnigraph.errors import MissingExtra

GROUP = "omnigraph.frames"
SPARK = "spark"


@dataclass(frozen=True, slots=True)
class Spool:
    """Rows as files that a load reads like any other."""

    files: tuple[str | os.PathLike[str], ...]
    engine: Engine | None = None
    """What made the files and is at hand to load them, too."""
    mapping: InputMapping | None = None
    """How their columns become properties."""


class Frames(Protocol):
    """DataFrames of one engine."""

    def of(self, graph: Any, questions: Any, session: Any) -> Any:
        """A graph as DataFrames, with what compiles its queries; without a session one is found or made."""
        ...

    def result(self) -> Callable[..., Any]:
        """What answers reads that are pinned, with a session that is found or made."""
        ...

    def spooled(self, frame: Any, root: Root, key: str) -> AbstractContextManager[Spool]:
        """The rows of a DataFrame as files, written by those who have them; there while the block lasts."""
        ...

    def computed(
        self, files: tuple[str | os.PathLike[str], ...], mapping: InputMapping, root: Root
    ) -> AbstractContextManager[Spool]:
        """Files with the values that a mapping has expressions for; there while the block lasts."""
        ...


def is_frame(data: object) -> bool:
    """Whether rows are a DataFrame of Spark; asking must not import it."""
    return type(data).__module__.startswith("pyspark.sql.")


def frames() -> Frames:
    """Who makes DataFrames of Spark."""
    known = _known()
    if SPARK not in known:
        raise MissingExtra("a graph as DataFrames", package="pyspark", extra=SPARK)
    return known[SPARK]


@cache
def _known() -> dict[str, Frames]:
    return {found.name: found.load() for found in entry_points(group=GROUP)}
