"""The handler of the rows of one type, as the library's `Snapshot.rows` returns them."""

from __future__ import annotations

import io

import pyarrow as pa
from starlette.responses import Response

from omnigraph.server.arrow_results import BATCH_ROWS, drain
from omnigraph.server.moments import authorize_moment, parse_moment, pin
from omnigraph.server.requests import Call
from omnigraph.server.route import ARROW
from omnigraph.server.streams import Pieces, start_stream
from omnigraph.server.wire.reads import RowsRequest


async def rows(call: Call) -> Response:
    """Stream the rows of a type."""
    asked = call.body(RowsRequest)
    moment = parse_moment(asked.branch, None, asked.commit, asked.version, asked.time)
    await authorize_moment(call, moment)
    graph = call.graph

    def begin() -> Pieces:
        pinned = pin(graph, moment)
        found = pinned.rows(asked.type, columns=asked.columns, limit=asked.limit)
        call.facts.update(rows=found.num_rows, commit_read=pinned.id)
        return _encode(found)

    return await start_stream(call, begin, ARROW)


def _encode(found: pa.Table) -> Pieces:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        for batch in found.to_batches(max_chunksize=BATCH_ROWS):
            writer.write_batch(batch)
            yield drain(sink)
    yield drain(sink)
