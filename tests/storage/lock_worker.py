"""A process that takes and frees branch locks: one command per line, answered with one line each."""

from __future__ import annotations

import os
import sys

from omnigraph import errors
from omnigraph.storage.location import Location
from omnigraph.storage.locks import BranchLocks, HeldLocks
from omnigraph.storage.stores import open_store


def fork_and_hold(locks: BranchLocks, held: HeldLocks) -> str:
    """A child that asks for the lock itself, while its parent has it and again after that."""
    (report, tell), (go, let_go) = os.pipe(), os.pipe()
    if os.fork() == 0:
        answers = [_try(locks, 0.0)]
        os.write(tell, b"?")
        os.read(go, 1)
        answers.append(_try(locks, 30.0))
        os.write(tell, " ".join(answers).encode())
        os._exit(0)
    os.read(report, 1)
    held.release()
    os.write(let_go, b"!")
    return os.read(report, 100).decode()


def _try(locks: BranchLocks, wait: float) -> str:
    try:
        locks.hold(["main"], wait=wait).require()
    except errors.OmnigraphError as error:
        return error.code
    return "held"


def fork(held: HeldLocks | None) -> str:
    """A child that reports whether it has the lock, then lives until it reads the end of a pipe."""
    report, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(report)
        state = "held" if held is not None and held.still_held() else "none"
        if held is not None:
            held.release()
        os.write(tell, state.encode())
        os.close(tell)
        # The terminal of commands is the parent's; this pipe ends when the test ends.
        os.read(int(os.environ["CHILD_LIFE"]), 1)
        os._exit(0)
    os.close(tell)
    state = os.read(report, 100).decode()
    os.close(report)
    return f"{child} {state}"


def main() -> None:
    root = Location.parse(sys.argv[1])
    locks = BranchLocks(open_store(root), root, ttl=float(sys.argv[2]))
    held: HeldLocks | None = None
    print("ready", flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        answer = "done"
        try:
            match command:
                case "hold":
                    held = locks.hold(
                        arguments[1:], operation_id=f"op-{os.getpid()}", wait=float(arguments[0])
                    )
                case "require" if held is not None:
                    held.require()
                case "release" if held is not None:
                    held.release()
                    held = None
                case "fork":
                    answer = fork(held)
                case "fork-and-hold" if held is not None:
                    answer = fork_and_hold(locks, held)
                case "count":
                    answer = count(locks, root, int(arguments[0]))
        except errors.OmnigraphError as error:
            answer = error.code
        print(answer, flush=True)


def count(locks: BranchLocks, root: Location, rounds: int) -> str:
    """Raise a number that only the lock protects."""
    store = open_store(root)
    for _ in range(rounds):
        with locks.hold(["main"], wait=60.0) as held:
            number = int(store.read_text(root / "number"))
            held.require()
            store.write_text(root / "number", str(number + 1))
    return "done"


if __name__ == "__main__":
    main()
