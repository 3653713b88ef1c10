"""Python processes that begin with everything imported, for tests in which several processes meet.

They are forked from one process (`tests/forking.py`) that has imported the package and used none of it, which
is as good as starting Python and takes a fraction of the time. What start-up itself does, and whatever could
depend on the hash seed, is tested with `subprocess`.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from tests.forking import ENDED, STOPPED

PIPE = subprocess.PIPE
PROJECT = Path(__file__).parents[1]


class _Forking:
    """The process that others are forked from; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forking", str(theirs.fileno())],
                cwd=PROJECT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def fork(self, order: Mapping[str, Any], handed: Sequence[int]) -> int:
        # An environment may be larger than what fits into a socket: the order travels as a file.
        with self._lock, TemporaryFile() as file:
            file.write(json.dumps(order).encode())
            file.flush()
            socket.send_fds(self._control, [b"fork"], [file.fileno(), *handed])
            answer = self._control.recv(100)
        assert answer, "the process that others are forked from ended"
        return int(answer)

    def end(self) -> None:
        self._control.close()
        self._process.wait()


@cache
def _forking() -> _Forking:
    forking = _Forking()
    atexit.register(forking.end)
    return forking


class Python:
    """A process that does what `python ARGUMENTS` does; it is held as `subprocess.Popen` holds one."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
        text: bool = True,
    ) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._nothing = "" if text else b""
        kind = "" if text else "b"
        status, tell = os.pipe()
        self._status = os.fdopen(status)
        self._theirs: dict[int, int] = {}
        self._to_close = [tell]
        self.stdin = self._stream(0, stdin, f"w{kind}")
        self.stdout = self._stream(1, stdout, f"r{kind}")
        self.stderr = self._stream(2, stderr, f"r{kind}")
        self._theirs |= {number: number for number in pass_fds}
        order = {
            "arguments": arguments,
            "environment": dict(os.environ if env is None else env),
            "folder": str(cwd or Path.cwd()),
            "numbers": list(self._theirs),
        }
        try:
            self.pid = _forking().fork(order, [tell, *self._theirs.values()])
        finally:
            for end in self._to_close:
                os.close(end)

    def _stream(self, number: int, given: int | None, mode: str) -> IO[Any] | None:
        """Our end of a stream that is to be a pipe; another one is handed over as it is."""
        if given != PIPE:
            self._theirs[number] = number if given is None else given
            return None
        ends = os.pipe()
        ours, theirs = reversed(ends) if number == 0 else ends
        self._theirs[number] = theirs
        self._to_close.append(theirs)
        return os.fdopen(ours, mode)

    def __enter__(self) -> Python:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.stdout, self.stderr, self.stdin):
            if stream is not None:
                stream.close()
        self.wait()

    def wait(self) -> int:
        """Wait for its end; gives its status, or the negative number of the signal that ended it."""
        while self.returncode is None:
            self._hear()
        return self.returncode

    def wait_until_stopped(self) -> None:
        """Wait until it stands still because of a signal."""
        assert self._hear() == STOPPED

    def _hear(self) -> str:
        what, _, status = self._status.readline().strip().partition(" ")
        assert what, "the process that others are forked from ended"
        if what == ENDED:
            self.returncode = int(status)
            self._status.close()
        return what

    def communicate(self, data: str | bytes | None = None) -> tuple[Any, Any]:
        """Tell it something, close its input, and wait for its end; gives what it wrote."""
        with ThreadPoolExecutor(1) as pool:
            errors = pool.submit(self._rest_of, self.stderr)
            if self.stdin is not None and not self.stdin.closed:
                # Who has ended reads nothing more; the status says why.
                with suppress(BrokenPipeError), self.stdin:
                    self.stdin.write(data or self._nothing)
            output = self._rest_of(self.stdout)
        self.wait()
        return output, errors.result()

    def _rest_of(self, stream: IO[Any] | None) -> Any:
        if stream is None or stream.closed:
            return self._nothing
        with stream:
            return stream.read()

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    *arguments: str, stdout: int = PIPE, stderr: int = PIPE, **settings: Any
) -> subprocess.CompletedProcess[Any]:
    """What `python ARGUMENTS` prints and how it ends; settings are those of `Python`."""
    child = Python(*arguments, stdout=stdout, stderr=stderr, **settings)
    output, errors = child.communicate()
    return subprocess.CompletedProcess(child.args, child.wait(), output, errors)
