"""Databases that keep a history, for `bench.merges` and `bench.diffs`: one table of people in each.

A module has `make(data, place)`, which turns a file of people into a database, and `Engine(place)` with the
methods of `Ours`. What they time is their own work, in a process of their own.
"""
