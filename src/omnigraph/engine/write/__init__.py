"""Rows on their way in: read, shaped and checked as Arrow batches, before anything is written."""
