"""The bytes of a graph: control objects, tables and locks, in a folder or in a bucket.

No code above this package knows Lance or an object store. Read in this order:

    location.py, objects.py        a location and its small control objects
    stores.py, folder.py, bucket.py   the store of a location
    session.py, tables.py          Lance sessions, and a table at a version
    staging.py, transactions.py    a staged change, and the transaction that made a version
    upsert.py, pieces.py           rows that replace others, and data files written ahead
    cas.py                         compare-and-swap on rows: the publish of a commit
    forks.py, references.py, fork_cache.py    a branch's own versions of a table
    base_paths.py, referenced_files.py   where a fork finds the files it shares
    indexes.py, index_files.py, search.py        staging, repairing and searching indexes
    delta.py                       what changed between two versions
    upkeep.py                      compaction, and removal of old versions
    version_files.py               the files that describe versions, and which version is newest
    locks.py                       branch locks: record_lock.py on a folder, lease.py in a bucket
    column_types.py                columns that a table stores in another type than rows are read in
    durability.py, truncation.py, checksums.py   syncing, partly written files, damaged files
    probe.py                       refuses stores that lack what safe writing needs
    lance_errors.py, failures.py   typed errors for failures of Lance and of the store
    temporary_folders.py, scratch_files.py   files of one operation
    input_files.py, input_tables.py              files and Lance tables of users, read only
"""

from __future__ import annotations

from omnigraph.deferred_pandas import defer_pandas_import

# Before any module of this folder imports Lance, and with it Arrow's datasets.
defer_pandas_import()
