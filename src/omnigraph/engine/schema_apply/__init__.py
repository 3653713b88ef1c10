"""Changing the schema of a graph: what it asks of tables, whether the data allows it, and carrying it out."""
