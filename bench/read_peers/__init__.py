"""Databases that answer the questions of `bench.reads`, one small module each, ours among them.

A module has `make(data, place)`, which turns files of data into a database, and `Engine(place)` with
`ask(question, parameters)`. The packages are no dependencies of the project; a peer that is not installed is
left out.
"""
