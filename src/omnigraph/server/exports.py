"""Handlers of exports and baselines: streams of NDJSON from one pinned snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.responses import Response

from omnigraph.engine.changes.change import ChangeFilter, parse_filter, require_types
from omnigraph.engine.changes.feed import AFTER, NOW
from omnigraph.engine.export.export_part import ExportPart, list_parts
from omnigraph.engine.export.row_writers import write_ndjson
from omnigraph.engine.graph.export_marks import mark_pieces
from omnigraph.policy.actions import Action
from omnigraph.server.moments import authorize_moment, parse_moment, pin
from omnigraph.server.requests import Call, branch_or_main
from omnigraph.server.route import NDJSON
from omnigraph.server.slots import Slot, release_all
from omnigraph.server.streams import Pieces, start_stream
from omnigraph.server.wire.base import encode
from omnigraph.server.wire.exports import BaselineLine, BaselinePosition, BaselineRequest, ExportRequest
from omnigraph.snapshot import Snapshot, pinned_by

PIECE_BYTES = 256 << 10
"""About so much of a type is encoded at one time."""


async def export(call: Call) -> Response:
    """Stream the entities of a branch, or of some types of it."""
    asked = call.body(ExportRequest)
    moment = parse_moment(asked.branch, None, asked.commit, asked.version, asked.time)
    types = asked.types
    await authorize_moment(call, moment, Action.EXPORT)
    graph = call.graph

    def begin() -> Pieces:
        pinned = pin(graph, moment)
        return _marked(pinned, _export_pieces(_list_parts(call, pinned, types)))

    return await _stream_export(call, begin)


async def capture_baseline(call: Call) -> Response:
    """Stream the entities of a branch, and at the end the cursor for everything after them."""
    asked = call.body(BaselineRequest)
    branch, wanted = branch_or_main(asked.branch), parse_filter(asked.kind, asked.type, asked.op)
    call.authorize(Action.EXPORT, branch=branch)
    graph = call.graph

    def begin() -> Pieces:
        pinned = graph.snapshot(branch)
        since = NOW if pinned.commit is None else f"{AFTER}{pinned.commit.id}"
        feed = graph.changes(branch, since=since, types=asked.type, kinds=asked.kind, ops=asked.op)
        position = BaselinePosition(snapshot_commit_id=pinned.id, resume_cursor=feed.cursor)
        return _marked(pinned, _baseline_pieces(_list_parts(call, pinned, _types(pinned, wanted)), position))

    return await _stream_export(call, begin)


async def _stream_export(call: Call, begin: Callable[[], Pieces]) -> Response:
    """Stream while holding the slot of the graph and room of the transport; both are free at the end."""
    slots: list[Slot] = [call.service.slots.claim_export(call.target.graph_id)]
    try:
        slots.append(await call.service.slots.claim_transport())
    except BaseException:
        release_all(slots)
        raise
    return await start_stream(call, begin, NDJSON, release=lambda: release_all(slots))


def _marked(pinned: Snapshot, pieces: Pieces) -> Pieces:
    """Show that the export runs, to others who would delete the graph."""
    return mark_pieces(pinned_by(pinned)[0], pieces)


def _list_parts(call: Call, pinned: Snapshot, types: Sequence[str] | None) -> list[ExportPart]:
    # A filter that no type passes is an export of nothing.
    parts = [] if types == [] else list_parts(*pinned_by(pinned), types)
    call.facts.update(rows=sum(part.rows for part in parts), commit_read=pinned.id)
    return parts


def _export_pieces(parts: Sequence[ExportPart]) -> Pieces:
    for part in parts:
        yield from write_ndjson(part, part.batches(PIECE_BYTES))


def _baseline_pieces(parts: Sequence[ExportPart], position: BaselinePosition) -> Pieces:
    """Yield lines that may be longer than a load takes, as the feed that follows has such, too."""
    for part in parts:
        yield from write_ndjson(part, part.batches(PIECE_BYTES), loadable=False)
    yield encode(BaselineLine(baseline=position)) + b"\n"


def _types(pinned: Snapshot, wanted: ChangeFilter) -> list[str] | None:
    """Return the types that a filter lets through; None for all."""
    require_types(wanted, pinned.tables)
    if not wanted.kinds and not wanted.types:
        return None
    return [key for key in pinned.tables if wanted.wants_table(key)]
