"""The process that Spark's Python workers are forked from, with all imported that tasks need.

Spark starts it as it starts its own, by `python -m`. A worker ends with every task that fails, and each new
one would import everything again.
"""

from __future__ import annotations

from pyspark.daemon import manager

from tests.forking import prepare

if __name__ == "__main__":
    prepare("pandas", "omnigraph.graph", "omnigraph.pipeline.fan_out")
    manager()
