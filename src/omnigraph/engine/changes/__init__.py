"""What changed: between any two snapshots of a graph, in one commit, and along a branch.

Read in this order:

    change.py                      a change as a value, filters of changes, and changes as HTML
    diff.py                        two snapshots, type by type, with images before and after
    feed.py, page.py               commit after commit, in pages, with cursors
    log.py                         commits, newest first, with how much each changed
    entity_history.py              the commits that changed one entity
    table_side.py                  a table at one snapshot, and where two versions of it diverged
    row_pairs.py                   which entities differ; equality.py decides
    comparison.py                  many changes: by tasks, in parts and buckets, the result as sorted files
"""

from __future__ import annotations

DEFAULT_ENTRIES = 20
"""How many commits a log has, unless the caller says otherwise."""
DEFAULT_CHANGES = 1000
"""How many changes a page has, unless the caller says otherwise."""
