"""Automatic upkeep of fragments and indexes; rows never change here.

after_write.py                 what happens to the tables that a commit moved
fragment_tiers.py              which small fragments are compacted
table_rewrite.py               rewrite a table into fewer fragments and update its indexes
declared_indexes.py            which index a column is to have
index_lag.py                   when an index lags too much, and its next segment
index_upkeep.py, index_tasks.py   declared indexes built after a write, by tasks where they are large
index_catch_up.py              how `optimize` updates lagging indexes
pending_indexes.py             what is still missing, as results report it
manifest_upkeep.py             the manifest compacted, its old versions collected
protected_versions.py          versions that cleanup must keep
"""
