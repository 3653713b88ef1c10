"""What changed: between any two snapshots of a graph, in one commit, and along a branch.

Read in this order:

    change.py                      a change as a value, and filters of changes
    snapshot_names.py              from what a user writes to a snapshot
    diff.py                        two snapshots, type by type; html_tables.py renders them in notebooks
    feed.py, page.py, tokens.py    commit after commit, in pages, with cursors
    table_side.py, ancestry.py     a table at one snapshot, and where two versions of it diverged
    row_pairs.py                   which entities differ; equality.py decides, images.py reads both sides
    runner_choice.py               in memory, or by tasks when there are many changes:
    comparison.py, sorted_runs.py  two sides in parts and buckets, and the result as sorted files
"""
