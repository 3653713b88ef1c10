"""Loads: files of records into a graph, all or nothing, whatever their size.

To read in this order:

    loader.py                      the entry: choose the strategy, commit once at the end, list rejects
    sources/                       files found, cut into items, and read item by item
    small_load.py                  rows that fit into memory
    large_load.py                  any number of rows: staging.py reads them, checks/ has the rules,
                                   id_files.py has the ids that tasks saw
    small_patch.py, large_patch.py   patches: rows with what they omit; stored_remainder.py reads that
    replaced_rows.py               which stored rows are replaced, found by tasks
    spool.py                       rows of Arrow, pandas, polars or Spark as files that a load reads
"""
