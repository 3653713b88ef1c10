"""What changed: between any two moments of a graph, in one commit, and along a branch.

To read in this order:

    change.py                      a change as a value, and filters of changes
    diff.py                        two moments, type by type; feed.py, page.py: commit after commit
    side.py, ancestry.py           a type at one moment, and where two versions of it parted
    pairs.py                       which entities differ; equality.py decides, images.py shows both
    hands.py, meeting.py, runs.py  the same by tasks, in buckets of ids, when very much changed
"""
