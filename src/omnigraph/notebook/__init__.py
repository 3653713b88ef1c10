"""A graph in a notebook: what it holds as small tables, and pictures of parts of it."""
