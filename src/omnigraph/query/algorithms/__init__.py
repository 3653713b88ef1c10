"""Algorithms over a whole graph: nodes as numbers, edges as blocks of them, vectors in NumPy."""
