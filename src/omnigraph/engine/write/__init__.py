"""Small writes: mutations and the write block.

builder.py, mutate.py          a write in Python, and a mutation query: statements over pending rows
statement_block.py             the statements of a write in Python, checked as they are added
pending_rows.py                the rows that statements write, which later statements see
staged_update.py               updates of more rows than memory is to hold
transaction.py                 what a write is prepared on, how often, and its commit
new_branch.py                  a branch created for a write
"""
