"""The read engine on Spark: a logical plan as DataFrames.

Spark joins, groups and sorts rows by ids. Expressions on values (comparisons, arithmetic, texts)
are evaluated by the functions of the local engine, on Arrow batches in tasks, so both engines return the
same results.
"""
