"""The process that Spark's Python workers are forked from, with all imported that tasks need.

Spark starts it as it starts its own, by `python -m`. A worker ends with every task that fails, and each new
one would import everything again.
"""

from __future__ import annotations

from importlib import import_module

from pyspark.daemon import manager

if __name__ == "__main__":
    for name in ("lance", "obstore", "pandas", "omnigraph.graph", "omnigraph.pipeline.fan_out"):
        import_module(name)
    manager()
