"""The rules about whole loads, worked out where rows with the same key meet."""
