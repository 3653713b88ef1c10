"""Who is joined to whom: adjacency in NumPy, walks over it, and its file beside the graph."""
