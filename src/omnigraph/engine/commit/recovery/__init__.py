"""Recovery: the next writer finishes or undoes what an interrupted write left behind.

To read in this order:

    sidecar.py                     the record that a write stores before its first effect
    sweep.py                       the entry: find records, take a branch's lock, recover each of them
    table_progress.py              how far the write came with one table, and the decision that follows
    verdict.py                     the same for a whole record, with what the manifest shows already
    damage.py                      which failures are permanent, and which are temporary
    actions.py                     roll forward, or roll back
    audit.py                       the table of recoveries
    forecast.py                    what a recovery would do; abandon a record that it cannot finish
    removals.py                    data that a schema change removes after its commit
    creations.py                   branches at old commits whose creation was interrupted
    drift.py                       table versions that no record explains
"""
