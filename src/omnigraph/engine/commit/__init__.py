"""The commit protocol: the only way to change what a graph holds.

plan.py, effects.py            a prepared write as a value, and its effects on tables
new_tables.py                  tables that a write creates
prepare.py                     stage files and look up rows before the lock is taken
gates.py                       checks under the lock, before the first effect
plan_record.py                 the record of a plan, written before the first effect
protocol.py                    the phases: record, effects, publish, remove the record
recovery/                      finish or undo interrupted writes
schema_lock.py, schema_staging.py, schema_upgrade.py   the schema's own files in a commit
"""
