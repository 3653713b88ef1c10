"""One graph: its manifest, commits, branches and the history they make.

The folders are floors: each one uses those below it and none above it. From the bottom:

    graph/            what a graph is: layout, manifest, commits, snapshots, and publishing a new state
    files/            files of users: YAML, schemas and queries, and where outputs may go
    rows/             records into checked Arrow rows, and filters on stored rows
    tasks/            who runs the tasks of large work, and rows shared out by key
    upkeep/           fragments and indexes kept in order after a write
    commit/           the commit protocol: plan, gates, record, effects, publish; recovery
    constraints/      rules about several rows, for mutations, loads and merges
    changes/          what differs between two snapshots, and the change feed of a branch
    branches/         creating, listing and deleting branches
    write/            mutations and the write block
    load/             files and frames into a graph, of any size
    inference/        a schema guessed from data
    export/           a graph as files
    embedding/        vectors of stored texts
    schema_apply/     from one schema to the next
    merge/            one branch into another
    maintenance/      optimize, cleanup, repair, doctor
    copying/          a graph to another place, while others write to it
    lifecycle/        creating and opening a graph

A write reads downward once: `write/` or `load/` builds a `CommitPlan`, `commit/protocol.py` runs it, and
`graph/publish.py` makes it visible.
"""
