"""A graph, or some of its types, at one moment, as files that other programs and a load can read."""
