"""The data pipeline: everything that moves many rows, as Spark jobs; the only room that imports pyspark.

To read in this order:

    session.py, spark_settings.py  finds or starts the session of this process
    java.py, start_cache.py, start_cache_training.py, warm_up.py   how Spark starts, and sooner
    server.py, server_supervisor.py, processes.py, cache_files.py   a warm Spark on this machine
    fan_out.py, map_reduce.py, task_environment.py   the kinds of job: one task per item, as rows or as
                                   answers, and rows grouped by key
    progress.py                    how far jobs are, and what they cost
    failures.py, task_errors.py, answers.py   errors and answers of tasks
    runner.py, spark_engine.py     runs the tasks of a load; what `engine.tasks.engines` imports
    table_scan.py                  scans of one type; graph_frames.py: what `graph.spark()` returns
    frame_spool.py, source_reader.py, mapping_expressions.py   DataFrames, any source that Spark has, and
                                   expressions as input of a load
    datasource.py, change_stream.py, source_errors.py   the Spark format `omnigraph`
    writer.py, staged_rows.py, sink_records.py   its writers, also of streams: tasks stage rows, one commits
    query/, changes/, algorithms/  logical plans, diffs and algorithms as DataFrames
    declared/                      pipelines that are declared in a file
"""

from typing import Any


def register(spark: Any) -> None:
    """Make the format `omnigraph` known to a Spark session: `spark.read.format("omnigraph")`."""
    from omnigraph.pipeline.datasource import register as make_known

    make_known(spark)
