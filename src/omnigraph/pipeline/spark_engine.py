"""Spark as an engine: when a load runs on it, and its DataFrames. Imports pyspark only when it is used."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any

from omnigraph.engine.graph.root import Root
from omnigraph.engine.load.loader import IN_MEMORY
from omnigraph.engine.load.sources.mapping import InputMapping
from omnigraph.engine.load.sources.spark_source import SparkSource
from omnigraph.engine.load.spool import Spool
from omnigraph.engine.tasks.runner import Engine
from omnigraph.pipeline import server
from omnigraph.pipeline.spark_settings import is_submitted
from omnigraph.query.engine_choice import SparkState


def choose(size: int, *, asked: bool) -> Engine | None:
    """Return Spark when the user asked for it, for large inputs, and whenever a warm one is running."""
    why = "it was asked for" if asked else _find_reason(size)
    if why is None:
        return None
    from omnigraph.pipeline.runner import SparkRunner
    from omnigraph.pipeline.session import session

    return Engine(SparkRunner(session()), why)


def _find_reason(size: int) -> str | None:
    """Why Spark should run it; None when this process should."""
    if not _is_installed():
        return None
    if is_submitted():
        return "spark-submit started this process"
    if size > IN_MEMORY:
        return f"{size} bytes of input are more than {IN_MEMORY}"
    return "a warm Spark is at hand" if server.find_server() is not None else None


def _is_installed() -> bool:
    return find_spec("pyspark") is not None and find_spec("pandas") is not None


class SparkFrames:
    """DataFrames of Spark; see `Frames` for the methods."""

    def open_graph(self, graph: Any, questions: Any, session: Any) -> Any:
        """Return a graph as DataFrames."""
        from omnigraph.pipeline.session import session as start_session

        spark = start_session() if session is None else session
        # After the session, which reports a missing pyspark.
        from omnigraph.pipeline.graph_frames import GraphFrames

        return GraphFrames(graph, questions, spark)

    def spark_state(self) -> SparkState:
        """Whether a session or a warm server is there, or could be started."""
        if not _is_installed():
            return SparkState.MISSING
        from omnigraph.pipeline.session import has_session

        warm = has_session() or server.find_server() is not None
        return SparkState.WARM if warm else SparkState.COLD

    def query_runner(self) -> Callable[..., Any]:
        """Return the function that runs pinned reads."""
        from omnigraph.pipeline.session import session

        spark = session()
        from omnigraph.pipeline.query.read import SparkReads

        return SparkReads(spark).result

    def spool_frame(self, frame: Any, root: Root, key: str) -> AbstractContextManager[Spool]:
        """Write the rows of a DataFrame or a `SparkSource` to files, in the tasks that hold them."""
        from omnigraph.pipeline.frame_spool import spool_frame, spool_source
        from omnigraph.pipeline.session import session

        if isinstance(frame, SparkSource):
            return spool_source(session(), frame, root, key)
        return spool_frame(frame, root, key)

    def spool_computed(
        self, files: tuple[str | os.PathLike[str], ...], mapping: InputMapping, root: Root
    ) -> AbstractContextManager[Spool]:
        """Write files with the values of a mapping's expressions, which Spark evaluates."""
        from omnigraph.pipeline.mapping_expressions import spool_computed
        from omnigraph.pipeline.session import session

        return spool_computed(session(), files, mapping, root)


FRAMES = SparkFrames()
