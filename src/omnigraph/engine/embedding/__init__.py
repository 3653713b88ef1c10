"""Vectors of texts that are stored: which are missing or out of date, made by tasks, landed in commits."""
