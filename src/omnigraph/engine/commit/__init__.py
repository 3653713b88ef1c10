"""The commit protocol: the only way to change what a graph holds.

plan.py                        a prepared write as a value
effects.py                     its effects: files staged before the lock, new tables, and the record
gates.py                       checks under the lock, before the first effect
protocol.py                    the phases: record, effects, publish, remove the record
recovery/                      finish or undo interrupted writes
schema_lock.py, schema_staging.py   the schema's own files in a commit
"""
