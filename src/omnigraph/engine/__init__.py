"""One graph: its manifest, commits, branches and the history they make."""
