"""The commit protocol: the only way to change what a graph holds.

plan.py, effects.py            a prepared write as a value, its effects on tables, and new tables
gates.py                       checks under the lock, before the first effect
plan_record.py                 files staged before the lock, and the record written before the first effect
protocol.py                    the phases: record, effects, publish, remove the record
recovery/                      finish or undo interrupted writes
schema_lock.py, schema_staging.py   the schema's own files in a commit
"""
