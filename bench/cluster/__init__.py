"""Figures about clusters, as ratios within one run: `python -m bench.cluster`.

declared.py     a cluster of many graphs with many queries
__main__.py     plan against compiling the files once, apply of nothing against plan, boot against opening
"""
