"""Handlers of Blobs: their bytes, in ranges and under conditions."""

from __future__ import annotations

from typing import Literal

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.rows.blobs import Blob
from omnigraph.errors import BadRequest, OmnigraphError
from omnigraph.server.conditions import ByteRange, matches_strongly, matches_weakly, parse_range
from omnigraph.server.errors import ClientGone, OpaqueFailure
from omnigraph.server.moments import authorize_moment, parse_moment, parse_version, pin
from omnigraph.server.requests import Call
from omnigraph.server.route import BYTES, JSON
from omnigraph.server.streams import Pieces, start_stream
from omnigraph.server.wire.base import encode
from omnigraph.server.wire.error_output import ErrorOutput

FAILURE = "Blob delivery failed before response headers"
SNAPSHOT_ID = "Omnigraph-Snapshot-Id"


@dataclass(frozen=True, slots=True)
class FoundBlob:
    """A Blob, and the snapshot it was found in."""

    blob: Blob
    snapshot_id: str

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every answer about bytes that the graph has."""
        return {
            "Accept-Ranges": "bytes",
            "ETag": self.blob.etag or "",
            SNAPSHOT_ID: self.snapshot_id,
        }


async def get_blob(call: Call) -> Response:
    """Return the bytes of a Blob, or the range of them that is asked for."""
    found = await _find(call)
    if found.blob.size is None:
        return redirect(found)
    early = _evaluate_conditions(call, found)
    if early is not None:
        return early
    size = found.blob.size
    part = parse_range(call.header("range"), call.header("if-range"), found.blob.etag or "", size)
    headers = {**found.headers, "Content-Length": str(size if part is None else part.length)}
    if part is not None:
        headers["Content-Range"] = f"bytes {part.start}-{part.end - 1}/{size}"
    wanted = ByteRange(0, size) if part is None else part
    if not wanted.length:
        return Response(b"", headers=headers, media_type=BYTES)
    try:
        status = 200 if part is None else 206
        return await start_stream(
            call, lambda: _pieces(found.blob, wanted), BYTES, headers=headers, status=status
        )
    except Exception as error:
        raise _explain(error) from error


async def head_blob(call: Call) -> Response:
    """Return what `get_blob` would, without bytes; ranges are ignored and nothing is read."""
    found = await _find(call)
    if found.blob.size is None:
        return redirect(found)
    early = _evaluate_conditions(call, found)
    if early is not None:
        return early
    return _Bodiless(200, {**found.headers, "Content-Length": str(found.blob.size), "Content-Type": BYTES})


async def _find(call: Call) -> FoundBlob:
    entity = _entity(call)
    type_name, entity_id, name = (_required(call, one) for one in ("type", "id", "property"))
    moment = parse_moment(
        call.query("branch"),
        call.query("snapshot"),
        call.query("commit"),
        parse_version(call),
        call.query("time"),
    )
    await authorize_moment(call, moment)

    def work() -> FoundBlob:
        pinned = pin(call.graph, moment)
        return FoundBlob(pinned.blob(type_name, entity_id, name, entity=entity), pinned.id)

    try:
        return await call.read(work)
    except Exception as error:
        raise _explain(error) from error


def _entity(call: Call) -> Literal["node", "edge"]:
    match _required(call, "entity"):
        case "node":
            return "node"
        case "edge":
            return "edge"
        case other:
            raise BadRequest(f"'{other}' is no kind of entity", remedy="choose one of: node, edge")


def _required(call: Call, name: str) -> str:
    found = call.query(name)
    if not found:
        raise BadRequest(f"parameter '{name}' is missing")
    return found


def _evaluate_conditions(call: Call, found: FoundBlob) -> Response | None:
    """Return the answer that the conditions of a request decide, if they do."""
    etag = found.blob.etag or ""
    required, known = call.header("if-match"), call.header("if-none-match")
    if required and not matches_strongly(required, etag):
        body = ErrorOutput(error="the Blob has another ETag than If-Match names", code="conflict")
        return Response(encode(body), 412, found.headers, media_type=JSON)
    if known and matches_weakly(known, etag):
        return _Bodiless(304, {**found.headers, "Content-Length": str(found.blob.size)})
    return None


def redirect(found: FoundBlob) -> Response:
    """Return where the bytes are that the graph does not have; the server never fetches them."""
    headers = {
        "Location": found.blob.uri or "",
        "Cache-Control": "no-store",
        SNAPSHOT_ID: found.snapshot_id,
    }
    return Response(b"", 302, headers)


def _pieces(blob: Blob, wanted: ByteRange) -> Pieces:
    yield from blob.parts(wanted.start, wanted.length)


def _explain(error: Exception) -> Exception:
    if isinstance(error, ClientGone) or (isinstance(error, OmnigraphError) and error.status != 500):
        return error
    return OpaqueFailure(FAILURE)


class _Bodiless(Response):
    """An answer whose length is not that of its body."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status_code = status
        self.media_type = None
        self.background = None
        self.body = b""
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head, and an end that comes later: the length of a body in one piece is corrected."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for more in (True, False):
            await send({"type": "http.response.body", "body": b"", "more_body": more})
