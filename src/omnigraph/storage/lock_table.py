"""The branch locks of one process: its identity as an owner, and the queue of its threads."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar

import msgspec


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A process that can hold locks; `token` is drawn when it starts, since process ids are reused."""

    host: str
    pid: int
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who holds a lock and for which operation; `earlier` are the operations before, newest first."""

    owner: Owner
    operation_id: str | None = None
    earlier: tuple[str, ...] = ()

    def operations(self) -> tuple[str, ...]:
        """The operations this lock was last taken for, newest first."""
        return self.earlier if self.operation_id is None else (self.operation_id, *self.earlier)


class LockStatus(msgspec.Struct, frozen=True):
    """A lock that is held at this moment."""

    holder: Holder | None
    """The holder, if it is recorded already."""


EARLIER_OPERATIONS = 8


class Gate:
    """Lets one thread of this process at a time use a lock, first come, first served.

    The turn is handed to the next thread without being freed in between: a thread that arrives then queues.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._busy = False
        self._queue: deque[threading.Event] = deque()

    def enter(self, timeout: float) -> bool:
        """Wait for the turn of this thread."""
        with self._mutex:
            if not self._busy:
                self._busy = True
                return True
            if timeout <= 0:
                return False
            turn = threading.Event()
            self._queue.append(turn)
        try:
            turn.wait(timeout)
        except BaseException:
            if not self._gave_up(turn):
                self.leave()
            raise
        return not self._gave_up(turn)

    def leave(self) -> None:
        """Let the next thread in."""
        with self._mutex:
            self._hand_over()

    def leave_to_waiter(self) -> bool:
        """Let a waiting thread in; False, and nothing changes, when none waits."""
        with self._mutex:
            return bool(self._queue) and self._hand_over()

    def idle(self) -> bool:
        """True when no thread is in, and so none waits."""
        with self._mutex:
            return not self._busy

    def waiting(self) -> int:
        """How many threads wait for their turn."""
        with self._mutex:
            return len(self._queue)

    def _hand_over(self) -> bool:
        """Give the turn to the longest waiter; False when no thread waits."""
        if self._queue:
            self._queue.popleft().set()
            return True
        self._busy = False
        return False

    def _gave_up(self, turn: threading.Event) -> bool:
        """Whether a thread left the queue before its turn came."""
        with self._mutex:
            if turn.is_set():
                return False
            self._queue.remove(turn)
            return True


class Slot(Protocol):
    """One lock as this process sees it; only the thread inside `gate` may use the rest."""

    gate: Gate

    def forget_in_child(self) -> None:
        """Called in a forked child, which holds none of its parent's locks."""


S = TypeVar("S", bound=Slot)


class LockTable:
    """The locks of one process; all handles of the process share one table."""

    def __init__(self) -> None:
        self._start()

    def slot(self, key: Hashable, make: Callable[[], S]) -> S:
        """The slot with this key, made when it is new."""
        with self.mutex:
            return self._slots.setdefault(key, make())  # type: ignore[return-value]

    def known(self, key: Hashable) -> Slot | None:
        """The slot with this key, if it is in use."""
        return self._slots.get(key)

    def forget(self, key: Hashable) -> None:
        """Drop a slot; the caller holds `mutex`."""
        self._slots.pop(key, None)

    def start_as_child(self) -> None:
        """Start empty in a forked child: another process, without locks."""
        inherited = list(self._slots.values())
        self._start()
        for slot in inherited:
            slot.forget_in_child()

    def _start(self) -> None:
        self.mutex = threading.RLock()
        self.owner = Owner(host=socket.gethostname(), pid=os.getpid(), token=secrets.token_hex(8))
        self._slots: dict[Hashable, Slot] = {}


THIS_PROCESS = LockTable()
os.register_at_fork(after_in_child=THIS_PROCESS.start_as_child)
