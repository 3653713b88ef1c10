"""Figures of the server, each a ratio within one run: `python -m bench.server NAME [--seconds N] [--rows N]`.

serving.py      a graph to serve, and servers as processes
wire.py         a small HTTP client, so that the client costs little beside the server
constant.py     a server of the same stack whose queries return a constant
open_loop.py    W9: requests at fixed times, reads with writes among them
costs.py        a point read and one-row writes, over HTTP and in this process
results.py      a large result as Arrow and as JSON, over HTTP and in this process
liveness.py     /healthz beside heavy queries, and memory with many connections
"""
