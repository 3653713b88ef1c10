"""Results of queries as streams of Arrow batches: what is not asked for yet is not computed or held."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping

import msgspec
import pyarrow as pa
from starlette.responses import Response

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.open_graph import AtBranch
from omnigraph.errors import WrongQueryKind
from omnigraph.graph import queries_of
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import Stored
from omnigraph.query.reader import PinnedTarget, PreparedRead, Reader
from omnigraph.query.request import Limits
from omnigraph.server.moments import Moment
from omnigraph.server.requests import Call
from omnigraph.server.route import ARROW
from omnigraph.server.streams import Pieces, start_stream
from omnigraph.server.wire.reads import QueryRequest

BATCH_ROWS = 16_384
BATCH_BYTES = 8 << 20
"""About the most bytes that a batch may have."""
COMMIT, QUERY, BRANCH, SNAPSHOT, TYPES = (
    f"omnigraph.{name}" for name in ("graph_commit_id", "query_name", "branch", "snapshot", "types")
)
"""What the metadata of the schema has: the facts of `ReadOutput`, and the types of the columns."""

_TEXT_BYTES = 64
"""What a text is counted with."""


@dataclass(frozen=True, slots=True)
class ArrowResult:
    """The batches of a query that is running, with a schema that says what was read."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


async def stream_arrow(call: Call, moment: Moment, asked: QueryRequest, seconds: float) -> Response:
    """Run a query that was authorized, and stream its batches."""

    def begin() -> Pieces:
        try:
            result = queries_of(call.graph).run_with(
                _open_result,
                asked.query,
                asked.params,
                name=asked.name,
                **moment.arguments(),
                max_rows=asked.max_rows,
                timeout=seconds,
                cancel=call.cancel,
            )
        except WrongQueryKind as error:
            raise contains_mutations(error.query) from error
        return _encode_batches(call, result)

    return await start_stream(call, begin, ARROW)


def _open_result(
    reader: Reader,
    query: PreparedRead,
    parameters: Mapping[str, Stored],
    pinned: PinnedTarget,
    limits: Limits,
) -> ArrowResult:
    batches = reader.stream(query, parameters, pinned, limits, _batch_rows(query))
    return ArrowResult(batches.schema.with_metadata(_describe(query, pinned)), batches)


def _describe(query: PreparedRead, pinned: PinnedTarget) -> dict[str, str]:
    snapshot, is_live = pinned.snapshot, isinstance(pinned.target, AtBranch)
    facts = {
        QUERY: query.name,
        BRANCH: snapshot.branch if is_live else None,
        SNAPSHOT: None if is_live else snapshot.id,
        COMMIT: snapshot.commit.id if snapshot.commit else None,
        TYPES: msgspec.json.encode([str(one) for one in query.types]).decode(),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _batch_rows(query: PreparedRead) -> int:
    """Return how many rows a batch has: fewer where each is large."""
    width = sum(map(_width, query.types)) or 1
    return max(1, min(BATCH_ROWS, BATCH_BYTES // width))


def _width(kind: ValueType) -> int:
    return 4 * kind.dimension if kind.scalar is Scalar.VECTOR else _TEXT_BYTES


def _encode_batches(call: Call, result: ArrowResult) -> Pieces:
    """Yield the stream format: the schema, each batch, the end."""
    sink, rows = io.BytesIO(), 0
    with pa.ipc.new_stream(sink, result.schema) as writer:
        for batch in result.batches:
            writer.write_batch(batch.replace_schema_metadata(result.schema.metadata))
            rows += batch.num_rows
            # A client that reads slowly holds what is on its way, and not the batch as well.
            del batch
            yield drain(sink)
    call.facts.update(rows=rows, commit_read=result.schema.metadata.get(COMMIT.encode(), b"").decode())
    yield drain(sink)


def drain(sink: io.BytesIO) -> bytes:
    """Return what was written, and empty the sink."""
    written = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return written


def contains_mutations(name: str) -> WrongQueryKind:
    """Return the error for a mutation that was sent to be read."""
    return WrongQueryKind(
        f"query '{name}' contains mutations (insert/update/delete); use POST /mutate for write queries",
        query=name,
        remedy="use `mutate` instead",
    )
