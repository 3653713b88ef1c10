"""Copying a graph to another place while others write to it.

cut.py       all branches at versions that belong together
content.py   the files that those versions need, and nothing that came later
copier.py    the steps in order: transfer, verify, resume an interrupted copy
"""
