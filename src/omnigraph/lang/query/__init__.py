"""The query language: text -> syntax tree -> resolved query -> logical plan.

Read in this order:

    compile.py                     text -> plan: parse, check, plan; what a query returns, reads and writes
    parser.py, expressions.py      text -> the tree of ast.py; printer.py: back
    foreign_syntax.py              words of SQL and Cypher, and how the same is written here
    check_*.py, scope.py           tree -> resolved.py and terms.py: each part of the language;
                                   check_choices.py: coalesce and case, check_dates.py: dates,
                                   check_paths.py: shortest paths
    planner.py                     resolved read -> plan.py; explain.py: plans as text
    block_names.py                 a name of its own for every variable of a plan
    simplify.py, patterns.py       negations at single tests, conjunctions split; patterns of texts
    parameters.py, statements.py   values from JSON, and mutations made in Python
    lint.py                        what looks wrong in a query
"""
