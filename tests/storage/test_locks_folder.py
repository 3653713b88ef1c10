"""The kernel lock of a folder inside one process: threads, descriptors, names, replaced files."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from omnigraph import errors
from omnigraph.storage.location import Location
from omnigraph.storage.locks import BranchLocks, read_lock_wait
from omnigraph.storage.record_lock import RecordLock
from omnigraph.storage.stores import open_store
from tests import python_process
from tests.python_process import PIPE


@pytest.fixture
def root(tmp_path: Path) -> Location:
    return Location.parse(tmp_path / "g")


def _locks(root: Location) -> BranchLocks:
    return BranchLocks(open_store(root), root)


_ASK = """
import sys
from omnigraph.storage.location import Location
from omnigraph.storage.locks import BranchLocks
from omnigraph.storage.stores import open_store
root = Location.parse(sys.argv[1])
print(BranchLocks(open_store(root), root).try_acquire([sys.argv[2]]) is not None)
"""


def _other_process_gets(root: Location, branch: str) -> bool:
    asked = python_process.run("-c", _ASK, root.uri, branch)
    assert asked.returncode == 0, asked.stderr
    return {"True\n": True, "False\n": False}[asked.stdout]


def _open_lock_files() -> list[str]:
    targets = (str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.exists())
    return sorted(target for target in targets if ".lock" in target)


@pytest.mark.usefixtures("hears_ctrl_c")
def test_ctrl_c_while_locks_are_given_back_keeps_none_of_them(
    root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_back = RecordLock.release

    def press_and_give_back(lock: RecordLock) -> None:
        signal.raise_signal(signal.SIGINT)
        give_back(lock)

    held = _locks(root).hold(["main"])
    monkeypatch.setattr(RecordLock, "release", press_and_give_back)
    with pytest.raises(KeyboardInterrupt):
        held.release()
    assert _other_process_gets(root, "main")


def test_threads_of_one_process_exclude_each_other(root: Location) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(10):
            # Each thread has a handle of its own on the same graph.
            with _locks(root).hold(["main"], wait=60):
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1)


def test_a_second_thread_learns_that_this_process_is_busy(root: Location) -> None:
    with _locks(root).hold(["main"], operation_id="01FIRST"), pytest.raises(errors.WriterBusy) as busy:
        _locks(root).hold(["main"], wait=0)
    assert f"process {os.getpid()} " in busy.value.owner
    assert busy.value.operation_id == "01FIRST"
    assert busy.value.retryable


def test_two_paths_to_one_graph_share_the_lock(root: Location, tmp_path: Path) -> None:
    root.path.mkdir()
    (tmp_path / "link").symlink_to(root.path)
    with _locks(root).hold(["main"]):
        assert _locks(Location.parse(tmp_path / "link")).try_acquire(["main"]) is None
        assert not _other_process_gets(root, "main")


def test_nothing_this_process_does_beside_it_drops_the_lock(root: Location) -> None:
    locks = _locks(root)
    with locks.hold(["main"], operation_id="01ONE"):
        assert locks.try_acquire(["main"]) is None
        holder = locks.last_holder("main")
        assert holder is not None
        assert holder.operation_id == "01ONE"
        assert locks.branch_of_operation("01ONE") == "main"
        assert open_store(root).exists(root / "__locks")
        with locks.hold(["other"]):
            pass
        assert not _other_process_gets(root, "main")
        assert _other_process_gets(root, "other")
    assert _other_process_gets(root, "main")


def test_asking_whether_a_lock_is_taken_takes_writes_and_drops_nothing(root: Location) -> None:
    locks = _locks(root)
    assert locks.read_status("main", wall=time.time()) is None
    assert not root.path.exists(), "asking makes no lock file"
    with locks.hold(["main"], operation_id="01ONE"):
        # Also for another handle of this process, which the kernel would tell nothing of.
        busy = _locks(root).read_status("main", wall=time.time())
        assert busy is not None
        assert busy.holder is not None
        assert (busy.holder.owner.pid, busy.holder.operation_id) == (os.getpid(), "01ONE")
        assert not _other_process_gets(root, "main"), "the lock was dropped"
    (file,) = (root.path / "__locks").iterdir()
    before = file.read_bytes(), file.stat().st_mtime_ns
    assert locks.read_status("main", wall=time.time()) is None
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert _open_lock_files() == []


_NEXT_IN_LINE = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 1 << 62)
    print("next", flush=True)
    sys.stdin.read()
"""


def test_a_lock_that_another_process_waits_for_is_taken(root: Location) -> None:
    """A new thread does not get it: the other one is next."""
    locks = _locks(root)
    locks.hold(["main"]).release()
    place = str(root.path / "__locks" / "main.lock")
    with python_process.Python("-c", _NEXT_IN_LINE, place, stdin=PIPE, stdout=PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "next\n"
        assert locks.read_status("main", wall=time.time()) is not None
        assert locks.try_acquire(["main"]) is None
    assert locks.read_status("main", wall=time.time()) is None


def test_descriptors_do_not_pile_up_and_lock_files_stay(root: Location) -> None:
    locks = _locks(root)
    for n in range(5):
        with locks.hold([f"b{n}", "main"]):
            assert len(_open_lock_files()) == 2
    assert _open_lock_files() == []
    assert sorted(path.name for path in (root.path / "__locks").iterdir()) == [
        "b0.lock",
        "b1.lock",
        "b2.lock",
        "b3.lock",
        "b4.lock",
        "main.lock",
    ]


def test_several_locks_are_taken_sorted_and_all_or_none(root: Location) -> None:
    locks = _locks(root)
    with locks.hold(["work", "main", "work"]) as held:
        assert held.branches == ("main", "work")
    with locks.hold(["work"]):
        with pytest.raises(errors.WriterBusy, match="'work'"):
            locks.hold(["main", "work"], wait=0)
        assert _other_process_gets(root, "main")


@pytest.mark.parametrize("branch", ["review/one", "a%2Fb", "..", "ünï cödé", "x#1"])
def test_any_branch_name_has_a_lock_of_its_own(root: Location, branch: str) -> None:
    locks = _locks(root)
    with locks.hold([branch], operation_id="01X"):
        assert locks.try_acquire([branch]) is None
        assert locks.branch_of_operation("01X") == branch
    assert [path.parent.name for path in root.path.rglob("*.lock")] == ["__locks"]


def test_a_graph_that_was_removed_and_made_again_has_new_locks(root: Location) -> None:
    old = _locks(root).hold(["main"])
    shutil.rmtree(root.path)
    with _locks(root).hold(["main"], wait=0) as new:
        new.require()
        old.release()
        assert not _other_process_gets(root, "main")


def test_earlier_operations_stay_readable_for_a_while(root: Location) -> None:
    locks = _locks(root)
    for n in range(12):
        with locks.hold(["main"], operation_id=f"op{n}"):
            pass
    holder = locks.last_holder("main")
    assert holder is not None
    assert holder.operations() == ("op11", "op10", "op9", "op8", "op7", "op6", "op5", "op4", "op3")
    assert locks.branch_of_operation("op5") == "main"
    assert locks.branch_of_operation("op0") is None
    assert locks.last_holder("never") is None


def test_a_lock_file_with_damaged_content_still_locks(root: Location) -> None:
    locks = _locks(root)
    with locks.hold(["main"]):
        pass
    (root.path / "__locks" / "main.lock").write_bytes(b'{"owner": {"ho')
    assert locks.last_holder("main") is None
    with locks.hold(["main"]) as held:
        held.require()


def test_a_released_lock_is_released_once(root: Location) -> None:
    locks = _locks(root)
    first = locks.hold(["main"])
    first.release()
    with locks.hold(["main"]) as second:
        first.release()
        assert not _other_process_gets(root, "main")
        second.require()


@pytest.mark.parametrize(("text", "seconds"), [("", 10.0), ("0", 0.0), (" 2.5 ", 2.5)])
def test_the_wait_is_a_setting(monkeypatch: pytest.MonkeyPatch, text: str, seconds: float) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", text)
    assert read_lock_wait() == seconds


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf"])
def test_a_wait_that_is_no_time_is_refused(
    monkeypatch: pytest.MonkeyPatch, root: Location, text: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", text)
    with pytest.raises(errors.BadRequest, match="OMNIGRAPH_LOCK_WAIT"):
        _locks(root).hold(["main"])
