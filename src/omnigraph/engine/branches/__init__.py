"""Branches of a graph.

manage.py                      create, list and delete branches
saved_bases.py                 merge bases saved from deleted branches
"""
