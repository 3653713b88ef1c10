"""Merging one branch into another: what both changed, which side wins, and what is a conflict.

*Ours* is the branch that is merged into, *theirs* the one that is merged. An entity that both changed
differently is *contested*; a rule that only the merged rows break, such as `@unique`, is a *violation*; what
people decided about either is a *choice*. Read in this order:

    merge.py                              the entry: plan on one state of the target, then commit or preview
    merge_inputs.py                       the base of both branches, and how each table is merged
    merge_base.py                         what the base holds: one commit, or several merged with each other;
                                          merges that are not on record
    patched_side.py                       a base that no stored version holds; rows of any side
    plan.py                               all tables together: decide, check the rules, decide again
    table_merge.py, bucketed_merge.py     one table: in memory, or in buckets of ids by tasks
    row_rule.py, cell_decisions.py        which branch changed what; then contested entities, cell by cell
    target_change.py                      the rows that the table of the target gets and loses
    rule_checks.py                        rules that the merged rows break, orphan edges among them
    choices.py, resolutions.py            choices, and the file they are written in
    conflict.py, conflict_builder.py      conflicts as values, with the entity on every side
    result.py                             what a merge returns
    replay.py                             revert, cherry-pick and reset: merges with a chosen base
"""
