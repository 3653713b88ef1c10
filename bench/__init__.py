"""Benchmarks: `python -m bench [name…]`; every number stands beside another one of the same run."""
