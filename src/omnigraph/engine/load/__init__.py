"""Loads: files of records into a graph, all or nothing, whatever their size."""
