"""Benchmarks: `python -m bench [name…]`; each compares with a yardstick measured in the same run."""
