"""What can stop a stream that writes into a graph."""

from __future__ import annotations

from omnigraph.errors.conflict import Conflict


class StreamSinkTaken(Conflict):
    """The name of a streaming sink belongs to a query with another checkpoint, or on another branch."""

    code = "stream_sink_taken"

    def __init__(self, sink: str, *, branch: str, batch: int) -> None:
        super().__init__(
            f"sink '{sink}' belongs to another query, which has written batch {batch} to branch '{branch}'",
            remedy="start the query with its own checkpoint and branch, or choose another name for the sink",
        )
        self.sink = sink
        self.branch = branch
        self.batch = batch
