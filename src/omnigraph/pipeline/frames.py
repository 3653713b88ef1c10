"""Graphs and DataFrames of Spark, for those who must not import Spark."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from omnigraph.engine.load.frames import Spool
from omnigraph.engine.load.sources.mapping import InputMapping
from omnigraph.engine.root import Root


class SparkFrames:
    """What the entry point `omnigraph.frames` names; the work is elsewhere and imported when it is wanted."""

    def of(self, graph: Any, questions: Any, session: Any) -> Any:
        """A graph as DataFrames."""
        from omnigraph.pipeline.session import session as found
        from omnigraph.pipeline.source import GraphFrames

        return GraphFrames(graph, questions, found() if session is None else session)

    def result(self) -> Callable[..., Any]:
        """What answers reads that are pinned."""
        from omnigraph.pipeline.query.read import SparkReads
        from omnigraph.pipeline.session import session

        return SparkReads(session()).result

    def spooled(self, frame: Any, root: Root, key: str) -> AbstractContextManager[Spool]:
        """The rows of a DataFrame as files, written by the tasks that have them."""
        from omnigraph.pipeline.sink import spooled

        return spooled(frame, root, key)

    def computed(
        self, files: tuple[str | os.PathLike[str], ...], mapping: InputMapping, root: Root
    ) -> AbstractContextManager[Spool]:
        """Files with the values that a mapping has expressions for, worked out by Spark."""
        from omnigraph.pipeline.computed import computed
        from omnigraph.pipeline.session import session

        return computed(session(), files, mapping, root)


SPARK = SparkFrames()
