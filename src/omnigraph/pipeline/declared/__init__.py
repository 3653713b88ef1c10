"""Declared pipelines: a file says what is read, how it is changed and where it goes; runs are on record.

To read in this order:

    declaration.py                 a pipeline as a value
    parse.py, sources.py, maps.py, members.py     the file, read strictly; secrets.py: what never stands in it
    surroundings.py                what names in it refer to
    document.py                    the declaration with all texts in it, as a cluster stores it
    check.py, sql.py               against what is there, without Spark
    plan.py, extraction.py         what a run would do, and its rows
    source_frames.py, view_uses.py, statement_errors.py   sources, read once; mistakes that Spark finds
    run.py, deliver.py, batch.py   a run, step by step
    records.py, lease.py           what is written down, and one run at a time
    adoption.py                    where that is, and how a cluster takes over the records of a file
    lineage.py                     what a run reads and writes, for a listener
"""
