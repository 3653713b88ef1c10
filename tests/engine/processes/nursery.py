"""A process that has imported everything and forks writers on demand, faster than starting them.

It has used neither Lance nor a store, so a fork of it may. It is the parent of the writers and can therefore
tell when one of them has stopped or ended. It answers over the socket whose number is its argument.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import warnings

from tests.engine.processes.writer import serve
from tests.forking import prepare


def main() -> None:
    # Lance warns of every fork, whether or not it was used before.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    prepare()
    control = socket.socket(fileno=int(sys.argv[1]))
    children: set[int] = set()
    while True:
        text, handed, _, _ = socket.recv_fds(control, 1000, 1)
        if not text:
            break
        request = json.loads(text)
        match request["do"]:
            case "fork":
                child = os.fork()
                if child == 0:
                    control.close()
                    serve(socket.socket(fileno=handed[0]))
                os.close(handed[0])
                children.add(child)
                control.send(str(child).encode())
            case "wait until stopped":
                os.waitid(os.P_PID, request["pid"], os.WSTOPPED)
                control.send(b"stopped")
            case "wait until ended":
                os.waitpid(request["pid"], 0)
                children.discard(request["pid"])
                control.send(b"ended")
    for child in children:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main()
