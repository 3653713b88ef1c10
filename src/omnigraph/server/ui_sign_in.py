"""Handlers of the session of the explorer."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.errors import Unauthorized
from omnigraph.server.requests import Call
from omnigraph.server.ui_sessions import comes_from_page, cookie_name
from omnigraph.server.wire.explorer import SessionOutput, SessionRequest


async def open_session(call: Call) -> Response:
    """Exchange a token for a cookie."""
    if not comes_from_page(call.request):
        raise Unauthorized("sessions are for the page at /ui", remedy="send a bearer token")
    service, token = call.service, call.body(SessionRequest).token.strip()
    if service.sessions.is_personal:
        actor = service.sessions.redeem(token)
    else:
        actor = service.tokens.identify([b"Bearer " + token.encode()])
    response = call.reply(SessionOutput(actor_id=actor))
    response.set_cookie(
        cookie_name(call.request),
        service.sessions.start(actor),
        httponly=True,
        samesite="strict",
        secure=call.request.url.scheme == "https",
    )
    return response


async def close_session(call: Call) -> Response:
    """End the session of the page."""
    call.service.sessions.end(call.request)
    response = call.reply(SessionOutput(actor_id=None))
    response.delete_cookie(cookie_name(call.request), httponly=True, samesite="strict")
    return response
