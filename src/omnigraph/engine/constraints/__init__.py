"""Rules about several rows, for mutations, loads and merges.

table_change.py                what an operation does to one table
stored_rows.py                 what the rules ask about rows that are stored already
change_rules.py                all rules, in their order; each in a file of its own:
                               duplicates.py (ids and `@unique`), edge_rules.py (ends and `@card`)
faults.py                      the rows that break a rule, as errors or as violations
"""
