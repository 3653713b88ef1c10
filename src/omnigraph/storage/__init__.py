"""Where a graph's bytes are: control objects, tables and locks, in a folder or in a bucket."""
