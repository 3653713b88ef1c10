"""Rows on their way in: read, shaped and checked as Arrow batches, before anything is written.

Nothing here knows where it runs: the tasks of a load call the same functions in other processes.

    builder.py, mutate.py          a write in Python, and a mutation query: statements over pending rows
    transaction.py                 what a write is prepared on, and how often; the way to the door
    splits.py, lines.py            text in parts and lines
    ndjson.py, decoders.py, alike.py              lines -> records: one by one, or many that are written alike
    shape.py, cells.py, ids.py     records -> rows with ids, a property at a time
    checks.py                      rules about single values
    sets.py                        rules about several rows, in their order, each in a file of its own:
                                   duplicates.py, unique.py, endpoints.py, cardinality.py
    stored.py                      what these rules ask about rows that are stored already
    faults.py, violations.py, rejects.py          what is wrong: as rows, in words, and on file
    predicate.py, sql.py           which rows an update or delete is about: asked of Arrow, and of Lance
    found.py, pending.py           those an update takes; what was written before, and how much may be
"""
