"""Topologies: adjacency in NumPy, walks over it, and its files beside the graph."""
