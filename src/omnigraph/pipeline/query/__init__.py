"""The read engine on Spark: a logical plan as DataFrames.

Spark joins, groups and sorts rows by ids. Whatever is said about values, comparisons, arithmetic, texts,
is evaluated by the same functions as in the local engine, on Arrow batches in tasks, so that both engines
mean the same.
"""
