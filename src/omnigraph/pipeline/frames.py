"""Graphs and DataFrames of Spark, for those who must not import Spark."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

from omnigraph.engine.load.engines import OnStage
from omnigraph.engine.load.frames import Spool
from omnigraph.engine.load.sources.mapping import InputMapping
from omnigraph.engine.root import Root


class SparkFrames:
    """What the entry point `omnigraph.frames` names; the work is elsewhere and imported when it is wanted."""

    def of(self, graph: Any, session: Any) -> Any:
        """A graph as DataFrames."""
        from omnigraph.pipeline.session import session as found
        from omnigraph.pipeline.source import GraphFrames

        return GraphFrames(graph, found() if session is None else session)

    def spooled(
        self, frame: Any, root: Root, key: str, on_stage: OnStage | None
    ) -> AbstractContextManager[Spool]:
        """The rows of a DataFrame as files, written by the tasks that have them."""
        from omnigraph.pipeline.sink import spooled

        return spooled(frame, root, key, on_stage)

    def computed(
        self,
        files: tuple[str | os.PathLike[str], ...],
        mapping: InputMapping,
        root: Root,
        on_stage: OnStage | None,
    ) -> AbstractContextManager[Spool]:
        """Files with the values that a mapping has expressions for, worked out by Spark."""
        from omnigraph.pipeline.computed import computed
        from omnigraph.pipeline.session import session

        return computed(session(), files, mapping, root, on_stage)


SPARK = SparkFrames()
