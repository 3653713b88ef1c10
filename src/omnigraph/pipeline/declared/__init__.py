"""Declared pipelines: a file says what is read, how it is changed and where it goes; runs are on record."""
