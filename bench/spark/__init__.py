"""Figures of the data pipeline on Spark, at any size; each party takes turns within one run.

    python -m bench.spark copy --edges 10000000            a load beside Spark's own copy with the same checks
    python -m bench.spark executors --edges 10000000       two executors of one core each, and one
    python -m bench.spark skip-bad --edges 10000000        a load with 1 % of wrong rows, and one without
    python -m bench.spark merge --persons 10000000         a merge of 1 %, and the load of all
    python -m bench.spark stream --rate 1000 --seconds 300 a stream of changes in batches of five seconds
    python -m bench.spark engines --edges 10000000         queries and algorithms here and on Spark

`loads.py` has the first four, `stream.py` and `engines.py` the others. Each prints JSON: seconds, bytes of
memory and the ratio that the figure is about.
"""
