"""Create and open graphs.

create.py                      a new graph, and its first commit
open.py                        an existing one; interrupted writes are recovered first
"""
