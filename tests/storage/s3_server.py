"""An S3-compatible server on loopback, as a program: prints its port, ends when its input ends.

Arguments are names of request headers that it ignores, as servers without conditional puts do.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


class OneWriteAtATime:
    """S3 decides a conditional put atomically; the emulation checks and stores in two steps."""

    def __init__(self, app: Any, ignored: list[str]) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._ignored = [f"HTTP_{name.upper().replace('-', '_')}" for name in ignored]

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        for name in self._ignored:
            environ.pop(name, None)
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._app(environ, start_response)
        with self._lock:
            return list(self._app(environ, start_response))


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = OneWriteAtATime(DomainDispatcherApplication(create_backend_app), sys.argv[1:])
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
