"""Changing the schema of a graph.

migration.py            what the change does to each table
check_stored_rows.py    whether the stored rows fit the new schema
rewrite_rows.py         stored rows in the new columns
apply.py                the entry: lock, plan, check, commit
"""
