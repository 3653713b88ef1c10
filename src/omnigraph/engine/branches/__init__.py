"""Branches of a graph.

manage.py                      create, list and delete branches
old_commits.py                 branches that begin at an old commit
tags.py                        create, move and delete tags
kept_commits.py                tagged commits of deleted branches
saved_bases.py                 merge bases saved from deleted branches
"""
