"""Files of users: inputs, and where outputs may be written.

source_files.py                schemas and queries read from files
output_paths.py                outputs are never written into a graph
atomic_output.py               an output that appears complete under its name, or not at all
"""
