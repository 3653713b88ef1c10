"""What a graph is, and the one compare-and-swap that changes what it shows.

layout.py, root.py             the paths of a graph; its stores, locks, clock and ids
manifest.py, lineage.py        what a branch is: versions of tables, and commits
coordinator.py                 the current state of a branch, in memory; state_cache.py: main's, on disk
snapshot.py, snapshot_tables.py   a graph at one point in time, and its tables
open_graph.py                  an open graph: branches, schema, snapshots
permissions.py                 what its policy lets an actor write; every writer asks it first
targets.py, branch_names.py    parse what a user wants to read (branch, commit, version, time)
tags.py                        names of commits, and tagged commits of deleted branches
publish.py                     the compare-and-swap of the manifest
table_forks.py                 a branch's own copy of a table, created by its first write
ancestry.py, merge_pins.py     ancestors of commits across branches, and pins of running merges
export_marks.py                marks of running exports, which keep a graph from being deleted
schema_files.py, table_types.py   the schema as files, its types as tables, their columns
format_stamp.py, migrations.py, legacy_commits.py   storage formats, and migrating old ones
relocation.py                  rewrite the forks of a graph that was moved
"""
