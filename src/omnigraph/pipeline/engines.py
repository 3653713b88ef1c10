"""When a load runs on Spark."""

from __future__ import annotations

from importlib.util import find_spec

from omnigraph.engine.load.run import IN_MEMORY, Engine
from omnigraph.pipeline import server


def choose(size: int, *, asked: bool) -> Engine | None:
    """Spark where it was asked for, for large inputs, and whenever it is warm."""
    why = "it was asked for" if asked else _reason(size)
    if why is None:
        return None
    from omnigraph.pipeline.runner import SparkRunner
    from omnigraph.pipeline.session import session

    return Engine(SparkRunner(session()), why)


def _reason(size: int) -> str | None:
    """Why Spark should do it; None when this process should."""
    if find_spec("pyspark") is None or find_spec("pandas") is None:
        return None
    if size > IN_MEMORY:
        return f"{size} bytes of input are more than {IN_MEMORY}"
    return "a warm Spark is at hand" if server.running() is not None else None
