"""The local read engine: a logical plan in, an Arrow table out.

Rows in flight are integers: positions in the tables of one snapshot. Properties are fetched when an
expression needs them, and returned columns once, at the end. To read in this order:

    ask.py, read.py                a question, pinned to a snapshot; request.py: its values and limits
    prepared.py, outline.py        what is known of a query before values and rows
    run.py                         a plan, step by step; reading.py: what all steps share
    interrupt.py                   long work beside the thread that asked for it
    pattern.py, match.py           what is matched, and in which order that is done
    scan.py, keyed.py, cold.py     nodes by their own tests, by key, and hops without memory
    frame.py, blocks.py, weigh.py  rows in flight, met with others, or only counted
    scope.py, expressions/         terms and predicates on them
    search/, rank.py               texts and vectors, and the best of them
    aggregate.py, order.py         groups and order; stretches.py: when rows are very many
    result.py, explain.py          what comes of it, and how it was found
    sources.py, rows.py, memory.py   the tables of a snapshot, numbered, and what is kept of them
    grown.py, places.py            what newer versions of a table add to what is kept
    topology/                      who is joined to whom
    algorithms/                    over all nodes at once
"""
