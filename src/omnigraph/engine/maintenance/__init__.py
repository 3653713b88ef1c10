"""What operators run: all of it can also happen later, or never.

optimize.py, ensure_indexes.py   fragments and indexes of all tables at once
cleanup/                         removes old versions, forks, tables and files
repair.py                        tables that were modified outside omnigraph
doctor.py, health.py             what is wrong with a graph, and the report as values
drift_check.py                   tables whose newest version their branch does not publish
deep_check.py                    reads everything that is stored
"""
