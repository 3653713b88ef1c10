"""The run of Spark that a start-up cache is made from; see `start_cache`."""

from __future__ import annotations

import sys
from pathlib import Path

from omnigraph.errors import InternalError
from omnigraph.pipeline.cache_files import cache_folder
from omnigraph.pipeline.java import find_java
from omnigraph.pipeline.session import Launch, launch_session
from omnigraph.pipeline.start_cache import start_cache
from omnigraph.pipeline.warm_up import run_warm_up_job


def train(target: Path) -> None:
    """Run the small job in a JVM that writes `target` when it ends, which is after this process."""
    folder, java = cache_folder(), find_java()
    cache = start_cache(java, folder)
    if cache is None:
        raise InternalError(f"Java {java.version} at {java.executable} cannot have a start-up cache")
    spark = launch_session(
        Launch(master="local[2]", java=java, folder=folder, java_options=cache.make_options(target))
    )
    run_warm_up_job(spark)
    spark.stop()


if __name__ == "__main__":
    train(Path(sys.argv[1]))
