"""One graph: its manifest, commits, branches and the history they make.

To read in this order:

    layout.py, root.py             where things are, and everything one graph is reached through
    manifest.py, lineage.py        what a branch is: versions of tables, and commits
    coordinator.py                 a branch as it is now, kept warm; snapshot.py: at one moment
    open.py, opened.py             a graph that is open, and how a question becomes a snapshot
    plan.py                        a write as a value
    prepare.py, gates.py           what is done for it before the lock is taken, and with the lock in hand
    commit.py                      the door, phase by phase; recording.py: its record, publish.py: phase C
    recovery/                      what happens when a writer dies on the way
    write/, load/, merge/, schema_apply/, indexing.py, optimize.py, embedding/    those who build plans
    tidy.py, upkeep.py, cleanup/   keeping tables and manifests cheap, and letting go what is past
    changes/, export/, doctor.py   those who only look
"""
