"""Changing the schema of a graph.

migration.py            what the change does to each table, and stored rows in the new columns
check_stored_rows.py    whether the stored rows fit the new schema
apply.py                the entry: lock, plan, check, commit
"""
