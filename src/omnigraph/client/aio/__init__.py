"""The same graph behind a server for asyncio: the calls of this room's parent, sent and awaited.

    graph.py      aconnect, and AsyncRemoteGraph: the methods of RemoteGraph
    history.py    its branches and commits
    snapshot.py   a moment of it, and its Blobs
    write_block.py   changes that are collected and sent in one request
    compare.py    differences between two moments, and changes of commits
    loads.py      loads, and rejects that arrive
    exports.py    lines of exports and baselines, written in a worker thread as they arrive
    batches.py    results of queries as batches of Arrow that arrive
    transport.py  httpx: sends a call, waits, retries what is safe
    blocking.py   work that would block the event loop, in worker threads

Nothing here builds a request or decodes an answer.
"""
