"""Recovery: what an interrupted write left behind is finished or undone by whoever comes next.

To read in this order:

    sidecar.py                     the record that a write stores before its first effect
    sweep.py                       the entry: find records, take a branch's lock, deal with each of them
    classify.py                    how far the write came with one table, and what follows for all of it
    verdict.py                     the same for a whole record, with what the manifest shows already
    damage.py                      what stands in the way for good, and what only at this moment
    actions.py                     doing it: forward, or back
    audit.py                       what was done, for those who ask later
    prospects.py                   what would be done; abandon.py: giving up a record by hand
    drift.py                       tables that moved although no record tells why
"""
