"""One branch taken into another: what both changed, who wins, and what cannot be decided.

*Ours* is the branch that is merged into, *theirs* the one that is taken in. An entity that both changed
differently is *contested*; a rule that only the merged rows break, such as `@unique`, is a *breach*; what
people decided about either is a *choice*. To read in this order:

    merge.py                       the entry: worked out on one state of the target, then committed, or shown
    history.py, standing.py        where the branches parted, and how each table is merged, by versions alone
    plan.py                        all tables together: decide, check the rules, decide again
    work.py, large.py              one table: in memory, or in buckets of ids by tasks
    contest.py, verdict.py         who changed what; then contested entities, cell by cell
    change.py                      what comes of it for the target's table
    breach.py, rules.py, orphans.py               rules about the merged rows
    choices.py, resolutions.py, values.py         decisions, the file they are written in, and its values
    freshness.py                   decisions that are out of date are refused
    conflict.py, images.py, tell.py               what is left to decide, with the entity on every side
"""
