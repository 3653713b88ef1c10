"""Databases with two tables that take one row more, for `bench.writes`, one small module each.

A module has `Engine(place)` with `grow` until there were so many commits, `insert` of a row into one table or
both, which gives the seconds it took, and `rows` of both. Each runs in a process of its own.
"""
