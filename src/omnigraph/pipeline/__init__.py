"""The data pipeline: everything that moves many rows, as Spark jobs; the only room that imports pyspark."""

from typing import Any


def register(spark: Any) -> None:
    """Make the format `omnigraph` known to a Spark session: `spark.read.format("omnigraph")`."""
    from omnigraph.pipeline.datasource import register as make_known

    make_known(spark)
