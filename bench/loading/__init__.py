"""Who brings the same files into tables, for `bench.loads` and `bench.bulk`, one small module each.

A module has `Engine(place)`, where `place` is a folder for whatever it writes. Its methods give the seconds
they took. Each runs in a process of its own, so that a large heap of one does not weigh on the others.
"""
