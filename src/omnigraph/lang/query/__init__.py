"""The query language: text -> syntax tree -> resolved query -> logical plan.

To read in this order:

    compile.py                     the whole way, with the result remembered
    parser.py, expressions.py      text -> the tree of ast.py; printer.py: back
    checker.py                     tree -> resolved.py and terms.py; check_*.py: each part of the language
    planner.py                     resolved read -> plan.py; explain.py: plans as text
    parameters.py, statements.py   values from JSON, and mutations made in Python
    descriptor.py, lint.py         what a query is known to do, and what is suspicious about it
"""
