"""Merging one branch into another: what both changed, which side wins, and what is a conflict.

*Ours* is the branch that is merged into, *theirs* the one that is merged. An entity that both changed
differently is *contested*; a rule that only the merged rows break, such as `@unique`, is a *violation*; what
people decided about either is a *choice*. Read in this order:

    merge.py                              the entry: plan on one state of the target, then commit or preview
    merge_inputs.py, table_strategy.py    the base of both branches, and how each table is merged
    merge_base.py                         what the base holds: one commit, or several merged with each other
    patched_side.py, unseen_merges.py     a base that no stored version holds, or that is partly unknown
    plan.py                               all tables together: decide, check the rules, decide again
    table_merge.py, bucketed_merge.py     one table: in memory, or in buckets of ids by tasks
    row_rule.py, cell_decisions.py        which branch changed what; then contested entities, cell by cell
    target_change.py                      the rows that the table of the target gets and loses
    violations.py, rule_checks.py, orphan_edges.py   rules that the merged rows break
    choices.py, resolutions.py, given_values.py      choices, the file they are written in, and its values
    stale_choices.py                      choices that are out of date are refused
    conflict.py, conflict_images.py, conflict_builder.py   conflicts as values, with the entity on every side
    scratch.py, result.py                 the folder for rows on disk; what a merge returns
"""
