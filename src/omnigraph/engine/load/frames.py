"""DataFrames of an engine outside this process, such as Spark: of a graph, and as files for a load."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from omnigraph.engine.graph.root import Root
from omnigraph.engine.load.sources.mapping import InputMapping
from omnigraph.engine.tasks.engines import SPARK, Engine, engine_module


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

    def open_graph(self, graph: Any, questions: Any, session: Any) -> Any:
        """A graph as DataFrames, with what compiles its queries; without a session one is found or made."""
        ...

    def query_runner(self) -> Callable[..., Any]:
        """What answers reads that are pinned, with a session that is found or made."""
        ...

    def spool_frame(self, frame: Any, root: Root, key: str) -> AbstractContextManager[Spool]:
        """The rows of a DataFrame as files, written by those who have them; there while the block lasts."""
        ...

    def spool_computed(
        self, files: tuple[str | os.PathLike[str], ...], mapping: InputMapping, root: Root
    ) -> AbstractContextManager[Spool]:
        """Files with the values that a mapping has expressions for; there while the block lasts."""
        ...


def is_frame(data: object) -> bool:
    """Whether rows are a DataFrame of Spark; asking must not import it."""
    return type(data).__module__.startswith("pyspark.sql.")


def get_frames() -> Frames:
    """Return the DataFrames of Spark."""
    spark: Frames = engine_module(SPARK).FRAMES
    return spark
