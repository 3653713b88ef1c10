"""An S3 server that does as it is told and loses every first answer to a put of a lease.

As a program it prints its port and ends when its input ends.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
from werkzeug.wrappers import Response

from tests.storage.s3_server import OneWriteAtATime

COUNT = "/answers-lost"
"""Where the server tells how many answers it lost."""


class LosesAnswers:
    """Answers the first of two equal puts with an error of the server, although it took effect."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lost: set[tuple[str, str]] = set()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == COUNT:
            return Response(str(len(self._lost)))(environ, start_response)
        put = (path, environ.get("HTTP_IF_MATCH", ""))
        is_lease = environ["REQUEST_METHOD"] == "PUT" and "/__locks/" in path and path.endswith(".json")
        if not is_lease or put in self._lost:
            return self._app(environ, start_response)
        self._lost.add(put)
        list(self._app(environ, lambda *_: lambda _: None))
        return Response("the answer was lost", status=500)(environ, start_response)


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = LosesAnswers(OneWriteAtATime(DomainDispatcherApplication(create_backend_app), []))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
