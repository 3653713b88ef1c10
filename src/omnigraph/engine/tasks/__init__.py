"""Runners for the tasks of large jobs, and rows partitioned by key.

runner.py                      the protocol of a runner, the one of this process, and the choice of an engine;
                               what tasks cost, for receipts
buckets.py                     rows shared out by a hash of their key
"""
