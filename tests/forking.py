"""The process that the processes of tests are forked from: `python -m tests.forking SOCKET`.

It imports the package and uses none of it: neither Lance nor a store has a thread yet, so a fork may use
both. It is the parent of all the others, and tells over a pipe of each of them when it stops and how it ends.
"""

from __future__ import annotations

import atexit
import dataclasses
import fcntl
import gc
import inspect
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import types
import warnings
from contextlib import suppress
from importlib import import_module
from typing import Any

STOPPED, ENDED = "stopped", "ended"
_IMPORTED = (
    "omnigraph.cli.main",
    "omnigraph.cli.serve",
    "omnigraph.graph",
    "omnigraph.server.start",
)
"""What the processes of most tests need."""
_IMPORTED_LATE = ("lance", "numpy.ma", "obstore", "pyarrow.acero")
"""What these import when they first use it."""

_MOST_FILES = 16
_ABOVE = 500
"""File descriptors above all that a test hands over by number."""


def prepare(*names: str) -> None:
    """Import what forks of this process need, and compile what waits for its first use: once, not in each."""
    for name in (*names, *_IMPORTED_LATE):
        import_module(name)
    for module in [found for name, found in sys.modules.items() if name.partition(".")[0] == "omnigraph"]:
        for kind in filter(inspect.isclass, vars(module).values()):
            dataclasses.is_dataclass(kind)
    gc.collect()
    gc.freeze()


class Forks:
    """The processes that live, and the pipes to tell about them."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._tell: dict[int, int] = {}
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> dict[str, Any] | None:
        """Fork as often as asked: in a child gives its order, in this process nothing, at the end."""
        while True:
            awaited: list[socket.socket | int] = [self._control, self._woken]
            ready, _, _ = select.select(awaited, [], [])
            if self._woken in ready:
                os.read(self._woken, 1000)
                self._report()
            if self._control in ready:
                asked, files, _, _ = socket.recv_fds(self._control, 100, _MOST_FILES)
                if not asked:
                    return None
                if (order := self._fork(*files)) is not None:
                    return order

    def _fork(self, order: int, tell: int, *files: int) -> dict[str, Any] | None:
        child = os.fork()
        if child == 0:
            os.close(tell)
            return self._begin(order, files)
        for file in (order, *files):
            os.close(file)
        self._tell[child] = tell
        self._control.send(str(child).encode())
        return None

    def _begin(self, order: int, files: tuple[int, ...]) -> dict[str, Any]:
        """In the child: nothing of this process but what was handed over, where it is expected."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        moved = [fcntl.fcntl(file, fcntl.F_DUPFD, _ABOVE) for file in files]
        orders: dict[str, Any] = json.loads(os.pread(order, os.fstat(order).st_size, 0))
        self._control.close()
        for file in (order, *files, self._woken, self._wake, *self._tell.values()):
            os.close(file)
        for file, number in zip(moved, orders["numbers"], strict=True):
            os.dup2(file, number)
            os.close(file)
        return orders

    def _report(self) -> None:
        while self._tell:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WNOHANG)
            if found is None:
                return
            if found.si_code == os.CLD_STOPPED:
                self._say(self._tell[found.si_pid], STOPPED)
                continue
            status = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
            pipe = self._tell.pop(found.si_pid)
            self._say(pipe, f"{ENDED} {status}")
            os.close(pipe)

    def _say(self, pipe: int, what: str) -> None:
        # Perhaps its reader is gone.
        with suppress(BrokenPipeError):
            os.write(pipe, f"{what}\n".encode())


def become(order: dict[str, Any]) -> None:
    """Be what `python ARGUMENTS` would be."""
    from omnigraph import failpoints

    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    encoding = os.environ.get("PYTHONIOENCODING") or "utf-8"
    sys.stdin = os.fdopen(0, encoding=encoding, closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding=encoding, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding, "backslashreplace", closefd=False)
    # It reads the environment as it is imported.
    failpoints.arm_from(os.environ)
    first, *rest = order["arguments"]
    if first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)  # noqa: S102 - that is what -c means
    elif first == "-m":
        sys.argv = rest
        sys.modules.pop(rest[0], None)
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def status_of(order: dict[str, Any]) -> int:
    """Follow an order and return the exit status; flushes all output."""
    status = 0
    try:
        become(order)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # undeclared, but what the interpreter calls
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def main() -> None:
    prepare(*_IMPORTED)
    with warnings.catch_warnings():
        # Lance warns of every fork, whether or not it was used before.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        order = Forks(socket.socket(fileno=int(sys.argv[1]))).serve()
    if order is not None:
        status = status_of(order)
        # The rest of what an interpreter does as it ends would copy most of the memory of this process.
        os._exit(status)


if __name__ == "__main__":
    main()
