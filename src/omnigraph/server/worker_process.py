"""`python -m omnigraph.server.worker_process`: one worker of a server; only the supervisor starts it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

import msgspec
from starlette.types import ASGIApp

from omnigraph.engine.rows.error_json import error_to_json
from omnigraph.errors import OmnigraphError
from omnigraph.server.listen import serve_on
from omnigraph.server.logs import set_up_logs
from omnigraph.server.sources import load_plan
from omnigraph.server.start import run_service
from omnigraph.server.supervisor import FAILED, READY, SERVE, WorkerSetup

ORDERS = 0
"""Standard input, a pipe that only the supervisor writes to."""


def main() -> int:
    """Serve until a signal, or until the supervisor is gone."""
    orders = sys.stdin.buffer
    setup = WorkerSetup.decode(orders.readline())
    set_up_logs()
    bound = socket.socket(fileno=setup.descriptor)

    def answer(app: ASGIApp) -> None:
        _report(READY)
        if orders.readline() != SERVE:
            return
        threading.Thread(target=_end_with_supervisor, daemon=True).start()
        serve_on(bound, app, setup.options)

    try:
        run_service(
            load_plan(setup.board.folder, setup.source), setup.tokens, setup.options, setup.board, answer
        )
    except OmnigraphError as error:
        _report(FAILED + msgspec.json.encode(error_to_json(error)) + b"\n")
        return 1
    return 0


def _report(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _end_with_supervisor() -> None:
    """Wait for the end of the pipe from the supervisor, which comes with its end, and end gracefully."""
    os.read(ORDERS, 1)  # not through the buffer: its lock would be held when the interpreter ends
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
