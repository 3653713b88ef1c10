"""The `omnigraph` command."""
