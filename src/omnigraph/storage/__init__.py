"""Where a graph's bytes are: control objects, tables and locks, in a folder or in a bucket.

Nothing above this room hears of Lance or of an object store. To read in this order:

    location.py, objects.py        a place, and small texts in it; folder.py and bucket.py do it
    session.py, tables.py          how Lance is reached, and a table at a version
    staging.py, transactions.py    a change beside its table, and who made a version of it
    upserting.py, taking_over.py, pieces.py       rows that replace others, and files written ahead
    cas.py                         all rows or none, on exactly what was read: the publish of a commit
    forks.py, fork_files.py, references.py, lives.py    a branch's own versions of a table, life by life
    indexes.py, index_files.py, search.py         indexes: staged, whole, and asked
    delta.py                       what changed between two versions
    upkeep.py, rewriting.py, version_files.py     fewer fragments, and no versions that nobody asks for
    locks.py                       who may write to a branch; record_lock.py on a folder, lease.py in a bucket
    durability.py, probe.py        what a loss of power leaves, and stores that lack what safe writing needs
    lance_errors.py, failures.py   what went wrong, in our own words
    inputs.py, input_tables.py     what others made, only read
"""
