"""Small writes: mutations and the write block.

builder.py, mutate.py          a write in Python, and a mutation query: statements over pending rows
statement_rows.py              the rows that a statement writes, and those that an update matches
transaction.py                 what a write is prepared on, how often, and its commit
new_branch.py                  a branch created for a write
"""
