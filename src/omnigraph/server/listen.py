"""Bind, announce the address, and serve until a signal; the only module that knows the ASGI server."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from granian._granian import SocketHolder
from granian.constants import Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from starlette.types import ASGIApp

from omnigraph.errors import BadRequest
from omnigraph.server.settings import Bind, ServeOptions

BACKLOG = 1024
HEADER_MILLISECONDS = 15_000
"""How long a client may take to send the head of a request."""
HEAD_BYTES = 64 << 10

_log = logging.getLogger(__name__)


class BoundServer(Server):
    """granian on a socket that is bound already: it does not report a port that the system chose."""

    def __init__(self, app: ASGIApp, listener: socket.socket, **settings: Any) -> None:
        self._listener = listener
        super().__init__(
            app,
            interface=Interfaces.ASGINL,
            log_enabled=False,
            websockets=False,
            backlog=BACKLOG,
            http1_settings=HTTP1Settings(
                header_read_timeout=HEADER_MILLISECONDS, max_buffer_size=HEAD_BYTES, pipeline_flush=True
            ),
            **settings,
        )

    def _init_shared_socket(self) -> None:
        # A copy: granian closes what it is given.
        hold: Any = SocketHolder
        self._shd: Any = hold(os.dup(self._listener.fileno()), False, BACKLOG)
        self._ssp: Any = None


def check_certificate(options: ServeOptions) -> None:
    """Raise `BadRequest` for a certificate or key that cannot be used, before anything is opened."""
    if options.tls_cert is None or options.tls_key is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise BadRequest(
            f"the certificate '{options.tls_cert}' with the key '{options.tls_key}' cannot be used: {reason}",
            remedy="name two PEM files that belong together",
        ) from error


def listen(
    app: ASGIApp, options: ServeOptions, announce: Callable[[socket.socket], None] | None = None
) -> None:
    """Bind, announce the address, and serve until SIGINT or SIGTERM."""
    warn_about(options)
    with bind_socket(options.bind) as bound:
        accept_connections(bound)
        serve_on(bound, app, options, on_start=lambda: (announce or print_address)(bound))


def serve_on(
    bound: socket.socket, app: ASGIApp, options: ServeOptions, on_start: Callable[[], None] = lambda: None
) -> None:
    """Serve on a socket until SIGINT or SIGTERM; requests under way are finished first."""
    asyncio.run(_serve(bound, app, options, on_start))


async def _serve(
    bound: socket.socket, app: ASGIApp, options: ServeOptions, on_start: Callable[[], None]
) -> None:
    server = BoundServer(app, bound, ssl_cert=options.tls_cert, ssl_key=options.tls_key)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, server.stop)
    serving = asyncio.ensure_future(server.serve())
    on_start()
    await serving


def print_address(bound: socket.socket) -> None:
    """Write the one line by which others learn the port."""
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"OMNIGRAPH_LISTEN_ADDR={shown}:{port}\n")
    sys.stdout.flush()


def bind_socket(bind: Bind) -> socket.socket:
    """Return a socket at an address; nothing can connect before `accept_connections`."""
    family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it. The end of a streamed answer must not wait until its beginning is confirmed.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        bound.bind((bind.host, bind.port))
    except OSError as error:
        bound.close()
        reason = error.strerror or str(error)
        raise BadRequest(
            f"cannot listen on {bind.host}:{bind.port}: {reason}", remedy="choose another --bind"
        ) from error
    return bound


def accept_connections(bound: socket.socket) -> None:
    """Let clients connect."""
    bound.listen(BACKLOG)
    bound.setblocking(False)


def warn_about(options: ServeOptions) -> None:
    """Log what is dangerous about an address that other machines can reach."""
    if options.bind.is_loopback:
        return
    if options.tls_cert is None:
        _log.warning("other machines can connect, and tokens and data travel unencrypted: use --tls-cert")
    if options.unauthenticated:
        _log.warning("other machines can connect, and with --unauthenticated they need no token")
