"""Automatic upkeep of fragments and indexes; rows never change here.

after_write.py                 what happens to the tables that a commit moved
table_rewrite.py               which small fragments to compact, and the rewrite of a table
declared_indexes.py            which index a column is to have, and what is pending
index_upkeep.py                declared indexes built after a write, by tasks where they are large
index_catch_up.py              when an index lags too much, and how it catches up
manifest_upkeep.py             the manifest compacted, its old versions collected
"""
