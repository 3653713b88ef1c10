"""Runners for the tasks of large jobs, and rows partitioned by key.

runner.py                      the protocol of a runner, and the one of this process
engines.py                     which engine work of a given size runs on
buckets.py                     rows shared out by a hash of their key
"""
