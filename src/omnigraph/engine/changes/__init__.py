"""What changed: between any two moments of a graph, in one commit, and along a branch."""
