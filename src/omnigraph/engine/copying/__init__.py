"""Copying a graph to another place while others write to it.

cut.py       all branches at versions that belong together
content.py   the files that those versions need, and nothing that came later
transfer.py  one file from one store to another, with a checksum
verify.py    whether the copy has every file, every byte and every row
copier.py    the steps in order, and resuming an interrupted copy
"""
