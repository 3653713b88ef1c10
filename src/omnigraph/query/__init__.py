"""The local read engine: a logical plan in, an Arrow table out.

Rows in flight are integers: positions in the tables of one snapshot. Properties are fetched when an
expression needs them, and returned columns once, at the end.
"""
