"""Loads: files of records into a graph, all or nothing, whatever their size.

To read in this order:

    run.py                         the entry: which way, and the one commit at the end
    sources/                       files found, cut into items, and read item by item
    small.py                       rows that fit into memory
    large.py                       any number of rows: stage.py reads them, checks/ has the rules
    runner.py                      who carries out the tasks; engines.py: who else may
    matching.py                    which stored rows are replaced, found by tasks
    notes.py, records.py           what is wrong on file, and the records it is about
    spool.py, frames.py            rows of Arrow, pandas, polars or Spark as files that a load reads
"""
