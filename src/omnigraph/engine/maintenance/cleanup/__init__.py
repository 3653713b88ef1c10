"""Removing what nothing needs any more: versions, forks, tables and files.

run_cleanup.py, policy.py              the entry, and how much history it keeps
needed_versions.py                     the versions that branches and merges still need
claims.py                              tags and branches at old commits that are created meanwhile
old_versions.py                        removes old versions of tables
unneeded_tables.py                     tables of dropped types, and tables that no branch ever published
stray_forks.py                         forks without a branch
"""
