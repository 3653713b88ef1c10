"""A graph behind a server, with the face of a local one.

    graph.py           connect, and RemoteGraph: the methods of Graph
    history.py         its branches and commits
    snapshot.py        a moment of it, and its Blobs
    write_block.py     changes that are collected and sent in one request
    compare.py         differences between two moments, and changes of commits
    exports.py         lines of exports and baselines, written as they arrive
    served_options.py  options that a server decides about

    aio/               the same for asyncio: aconnect, and AsyncRemoteGraph

    calls.py           a request as a value: what is sent, and how the answer is decoded
    reads.py, writes.py, changes.py   the calls of each kind
    statements.py      the calls of a write block, and its statements as JSON
    loads.py           rows and files as bodies of loads
    decode.py          JSON of answers as the values that Graph returns
    results.py         Arrow and JSON of queries as Result
    arrow_frames.py    Arrow that arrives in chunks as batches
    feed_pages.py      pages of a change feed as commits
    failures.py        bodies of failures as the errors that Graph raises
    transport.py       httpx: sends a call, waits, retries what is safe

Requests are built and answers decoded without any input or output: only `transport.py` and its twin in
`aio/` send something, and the classes above them are thin.
"""
