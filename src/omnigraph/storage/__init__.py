"""The bytes of a graph: control objects, tables and locks, in a folder or in a bucket.

No code above this package knows Lance or an object store. Read in this order:

    location.py, objects.py        a location and its small control objects
    stores.py, folder.py, bucket.py   the store of a location, and whether it allows safe writes
    session.py, tables.py          Lance sessions, the cache of open forks, and a table at a version
    staging.py                     a staged change, and the transaction that made a version
    upsert.py, pieces.py           rows that replace others, and data files written ahead
    cas.py                         compare-and-swap on rows: the publish of a commit
    forks.py, references.py        a branch's own versions of a table
    base_paths.py                  where a fork finds the files it shares
    indexes.py, index_files.py, search.py        staging, repairing and searching indexes
    delta.py                       what changed between two versions
    fragments.py                   the fragments of a table, in groups for tasks
    upkeep.py                      compaction, removal of old versions, and the files a version needs
    version_files.py               the files of a table by name: data, versions, and which version is newest
    locks.py                       branch locks: record_lock.py on a folder, lease.py in a bucket
    column_types.py                columns that a table stores in another type than rows are read in
    durability.py, checksums.py    partly written files and syncing; damaged files
    failures.py                    typed errors for failures of Lance and of the store
    scratch.py                     temporary folders and scratch files of one operation
    cache_budget.py, concurrency.py   how much memory reads keep, how many threads a write uses
    input_files.py, input_tables.py              files and Lance tables of users, read only
"""

from __future__ import annotations

from omnigraph.deferred_pandas import defer_pandas_import

# Before any module of this folder imports Lance, and with it Arrow's datasets.
defer_pandas_import()
