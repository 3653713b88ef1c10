"""Algorithms on Spark: edges stay with the tasks, vectors go to them and come back."""
