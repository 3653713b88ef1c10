"""Distances, relevance and text matches of nodes."""
