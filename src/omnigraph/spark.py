"""The public names that need Spark, from the extra `omnigraph[spark]`.

    from omnigraph.spark import GraphFrames, SparkSource, register, session

`session` opens the Spark session of this process, `register` adds the format `omnigraph` to one,
`graph.spark()` returns `GraphFrames`, and `graph.load` takes a `SparkSource`. Importing
this module does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.engine.load.sources.spark_source import SparkSource
    from omnigraph.pipeline import register
    from omnigraph.pipeline.algorithms.frame_algorithms import FrameAlgorithms
    from omnigraph.pipeline.graph_frames import GraphFrames
    from omnigraph.pipeline.session import session

__all__ = ["FrameAlgorithms", "GraphFrames", "SparkSource", "register", "session"]

_HOMES = {
    "FrameAlgorithms": "omnigraph.pipeline.algorithms.frame_algorithms",
    "GraphFrames": "omnigraph.pipeline.graph_frames",
    "SparkSource": "omnigraph.engine.load.sources.spark_source",
    "register": "omnigraph.pipeline",
    "session": "omnigraph.pipeline.session",
}

# Hidden from type checkers, which would take it to mean that every name exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'omnigraph.spark' has no attribute '{name}'")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
