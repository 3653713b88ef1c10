"""The data pipeline: everything that moves many rows, as Spark jobs; the only room that imports pyspark.

To read in this order:

    session.py                     the one place that makes a session; spark_settings.py: what it is told
    java.py, start_cache.py, server.py, keeper.py, launching.py   what it starts with, and a warm one
    fan_out.py, collected.py, map_reduce.py       the three shapes of a job: tasks, their answers, equal keys
    progress.py, failures.py, carried.py          how far it is, and what went wrong, from inside tasks
    runner.py, engines.py          the tasks of a load, and when they run here
    source.py, where.py            a graph as DataFrames; query/: a logical plan as DataFrames
    sink.py, computed.py           DataFrames as input of a load
    datasource.py, stream.py, writer.py           the format `omnigraph` of Spark
    changes/, algorithms/          differences, and algorithms
    declared/                      pipelines that a file declares
"""

from typing import Any


def register(spark: Any) -> None:
    """Make the format `omnigraph` known to a Spark session: `spark.read.format("omnigraph")`."""
    from omnigraph.pipeline.datasource import register as make_known

    make_known(spark)
