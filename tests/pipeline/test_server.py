"""The warm server: found by itself, used by one's own only, and ended without harm to strangers."""

from __future__ import annotations

import fcntl
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import SparkUnavailable
from omnigraph.pipeline import server, server_supervisor
from omnigraph.pipeline.processes import is_ours
from omnigraph.pipeline.server import Server, ServerFolder, ServerSpec
from tests.pipeline.fresh_process import run

WISH = ServerSpec("a" * 32, "token", 1, "local[2]", "1g", 0.001)


def omnigraph(*arguments: str) -> Any:
    """What a command in a process of its own prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "omnigraph.cli.main", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return {**json.loads(done.stdout), "exit": done.returncode}


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with us; it waits until its input ends."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def record_server(pid: int, identity: str = "b" * 32) -> ServerFolder:
    folder = ServerFolder.of_this_environment()
    folder.write(Server(**{**asdict(WISH), "identity": identity}, keeper=pid, jvm=pid, started=0.0))
    return folder


# One test, because starting the server costs more than all it shows.
@pytest.mark.spark
def test_a_server_is_started_found_used_and_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Here with the machine's own Java, where there is one.
    monkeypatch.delenv("OMNIGRAPH_JAVA")
    assert omnigraph("spark", "status") == {"running": False, "exit": 1}
    started = omnigraph("spark", "start", "--master", "local[2]", "--memory", "1g")
    try:
        assert started["started"]
        shown = omnigraph("spark", "status")
        assert (shown["running"], shown["url"], shown["pid"]) == (True, started["url"], started["pid"])
        again = omnigraph("spark", "start")
        assert (again["started"], again["pid"]) == (False, started["pid"])
        monkeypatch.setenv("AWS_REGION", "of-the-client")
        assert run(CLIENT) == {
            "host": "localhost",
            "items": [1, 2, 3],
            "region": "of-the-client",
            "error": "branch_not_found: branch 'work' not found",
            "bug": "stage 'bug' failed: ValueError: odd",
            "cancelled": "stage 'wait' was cancelled",
            "last_progress": ["items", 3, 3],
        }
        place = f"{tmp_path / 'loaded/spy.yaml'}:1"
        assert run(LOADED, str(tmp_path / "loaded")) == {
            "cores": 2,
            "engine": ["spark", "a warm Spark is at hand"],
            "loaded": [{"P": 50}, {"E": 50}],
            "merged": [{"P": 3}, {"value": 1}, ["bad"]],
            "run": ["succeeded", "succeeded", {"P": 1}],
            "refused": {
                "code": "pipeline_expression_refused",
                "message": f"{place}: view 'clean': function 'reflect' is not permitted",
            },
            "people": 52,
        }
        assert run(INTERRUPTED, str(tmp_path)) == {
            "status": 130,
            "line": {"event": "interrupted"},
            "out": "",
            "left": [],
            "handler": True,
        }
        assert run(DYING, str(tmp_path / "died")) == {
            "items": [1, 2],
            "other_address": "spark_session_active",
        }
        clients_take_turns_and_work_of_a_killed_one_ends()
        assert run(STRANGER, started["url"])["code"] == SparkUnavailable.code
    finally:
        stopped = omnigraph("spark", "stop")
    assert stopped == {"stopped": True, "exit": 0}
    assert omnigraph("spark", "status") == {"running": False, "exit": 1}
    assert omnigraph("spark", "stop") == {"stopped": False, "exit": 0}
    assert Path(started["log"]).read_text() == ""


def clients_take_turns_and_work_of_a_killed_one_ends() -> None:
    """Two clients of two slots; each task connects to this process and waits for a byte."""
    with ExitStack() as lines, socket.create_server(("127.0.0.1", 0), backlog=8) as door:
        door.settimeout(120)
        port = str(door.getsockname()[1])

        def arrive() -> tuple[socket.socket, bytes]:
            line = lines.enter_context(door.accept()[0])
            line.settimeout(120)
            return line, line.recv(1)

        with client(WAITING, port, "few", "1") as few, client(WAITING, port, "many", str(MANY)) as many:
            ready = dict(name_first(arrive()) for _ in range(2))
            ready[b"m"].sendall(b"go")
            held = [arrive() for _ in range(2)]
            assert [name for _, name in held] == [b"m", b"m"]
            ready[b"f"].sendall(b"go")
            # Jobs that are in line behind each other would let no task of the other client begin.
            done, newest = 0, held.pop()
            while newest[1] == b"m":
                assert (done := done + 1) < MANY - 2
                newest[0].sendall(b".")
                newest = arrive()
            newest[0].sendall(b".")
            assert few.wait(timeout=120) == 0
            many.kill()
            assert held[0][0].recv(1) == b""  # the process of its task is gone


def name_first(arrived: tuple[socket.socket, bytes]) -> tuple[bytes, socket.socket]:
    return arrived[1], arrived[0]


@contextmanager
def client(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", program, *arguments]) as process:
        try:
            yield process
        finally:
            process.kill()


MANY = 100
WAITING = """
import socket, sys
import pyarrow as pa
from omnigraph.pipeline.fan_out import fan_out
from omnigraph.pipeline.session import session

ITEMS = pa.schema([("item", pa.int64())])
port, name = int(sys.argv[1]), sys.argv[2][:1].encode()

def waits(item):
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(name)
        line.recv(1)
    yield pa.record_batch([[item]], schema=ITEMS)

spark = session()
with socket.create_connection(("127.0.0.1", port)) as line:
    line.sendall(name)
    line.recv(2)
fan_out(spark, list(range(int(sys.argv[3]))), waits, ITEMS).toArrow()
spark.stop()
"""

DYING = """
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from omnigraph.errors import OmnigraphError
from omnigraph.pipeline.fan_out import fan_out
from omnigraph.pipeline.session import session

ITEMS = pa.schema([("item", pa.int64())])
mark = sys.argv[1]

def dies_once(item):
    if item == 2 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    yield pa.record_batch([[item]], schema=ITEMS)

spark = session()
found = fan_out(spark, [1, 2], dies_once, ITEMS).toArrow()
try:
    session("sc://localhost:1")
    code = None
except OmnigraphError as error:
    code = error.code
answer = {"items": sorted(found["item"].to_pylist()), "other_address": code}
spark.stop()
"""

CLIENT = """
import os, socket, threading
import pyarrow as pa
from omnigraph.errors import BranchNotFound, OmnigraphError
from omnigraph.pipeline.connection import server_host
from omnigraph.pipeline.fan_out import fan_out
from omnigraph.pipeline.progress import watch_stage
from omnigraph.pipeline.session import session
from omnigraph.progress import progress_to

ITEMS = pa.schema([("item", pa.int64()), ("region", pa.string())])
spark = session()
door = socket.create_server(("127.0.0.1", 0))
port = door.getsockname()[1]

def good(item):
    if item == 3:
        with socket.create_connection(("127.0.0.1", port)) as line:
            line.recv(1)
    yield pa.record_batch([[item], [os.environ["AWS_REGION"]]], schema=ITEMS)

def ours(item):
    raise BranchNotFound("work")
    yield

def bug(item):
    raise ValueError("odd")
    yield

def waits(item):
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.recv(1)
    yield

def failure(stage, task, cancel=None):
    try:
        with watch_stage(spark, stage, cancel=cancel):
            fan_out(spark, [1], task, ITEMS).toArrow()
    except OmnigraphError as error:
        return error

# The server tells of progress every two seconds, so the last task goes on once that was heard.
reports, heard = [], threading.Event()
def listen(report):
    reports.append(report)
    if report.tasks:
        heard.set()
def let_go():
    with door.accept()[0]:
        heard.wait()
threading.Thread(target=let_go, daemon=True).start()
with progress_to(listen), watch_stage(spark, "items"):
    found = fan_out(spark, [1, 2, 3], good, ITEMS).toArrow()
error, wrong = failure("ours", ours), failure("bug", bug)

cancel = threading.Event()
lines = []
def accept():
    lines.append(door.accept()[0])
    cancel.set()
threading.Thread(target=accept, daemon=True).start()
cancelled = failure("wait", waits, cancel)
answer = {
    "host": server_host(spark),
    "items": sorted(found["item"].to_pylist()),
    "region": found["region"][0].as_py(),
    "error": f"{error.code}: {error}",
    "bug": str(wrong),
    "cancelled": str(cancelled),
    "last_progress": [reports[-1].stage, reports[-1].tasks_done, reports[-1].tasks] if reports else [],
}
[line.close() for line in lines]
door.close()
spark.stop()
"""

# Every sort of task: one for each item, meeting by key, streamed answers, rows of a DataFrame.
LOADED = """
import json, sys
from pathlib import Path
import omnigraph as og
from omnigraph.engine.load import replaced_rows as matching
from omnigraph.engine.load.checks import check_scope as scope
from omnigraph.pipeline.declared.extraction import SparkExtract
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.declared.run import run
from omnigraph.pipeline.runner import SparkRunner
from omnigraph.pipeline.session import session

folder = Path(sys.argv[1])
folder.mkdir()

def written(name, *lines):
    (folder / name).write_text("\\n".join(json.dumps(line) for line in lines))
    return folder / name

def person(key, number):
    return {"type": "P", "data": {"k": key, "v": number}}

spark = session()
schema = "node P { k: String @key  v: I64? @unique }  edge E: P -> P @card(0..2)"
graph = og.init(folder / "team", schema=schema)
edges = [{"edge": "E", "from": f"p{at}", "to": f"p{(at + 1) % 50}"} for at in range(50)]
few, scope.FEW, matching.WORTH = scope.FEW, 0, 0
first = graph.load(written("a.jsonl", *[person(f"p{at}", at) for at in range(50)], *edges), mode="append")
scope.FEW = few
more = written("b.jsonl", person("p1", 2), person("p2", 1), person("q", 99), person("bad", "x"))
second = graph.load(more, mode="merge", skip_bad=True, rejects=folder / "left")
written("in.json", {"k": "json", "v": 1000})
nodes = [{"type": "P", "view": "source", "properties": {"k": "k", "v": "v"}}]
target = {"graph": "team", "map": {"nodes": nodes}}
declared = {"pipelines": {"crm": {"source": {"format": "json", "path": "in.json"}, "into": [target]}}}
pipeline = read_pipeline(written("crm.yaml", declared))
record = run(pipeline, SparkExtract(pipeline, spark))
query = "select upper(k) as k, reflect('java.lang.System', 'getenv', 'PATH') as v from source"
clean = {"view": "clean", "query": query}
declared["pipelines"]["crm"]["transforms"] = [clean]
spying = read_pipeline(written("spy.yaml", declared))
refused = run(spying, SparkExtract(spying, spark)).targets["graph.team"].error
left = [json.loads(line)["record"]["data"]["k"] for line in (folder / "left").read_text().splitlines()]
answer = {
    "cores": SparkRunner(spark).cores,
    "engine": [first.engine.name, first.engine.why],
    "loaded": [dict(first.nodes), dict(first.edges)],
    "merged": [dict(second.nodes), dict(second.skipped_counts), left],
    "run": [record.status, record.targets["graph.team"].status, dict(record.targets["graph.team"].nodes)],
    "refused": refused,
    "people": graph.snapshot().rows("P").num_rows,
}
spark.stop()
"""

INTERRUPTED = """
import io, json, os, signal, sys
from pathlib import Path
from omnigraph import graph
from omnigraph.cli import progress
from omnigraph.cli.main import main

progress.SECONDS_BETWEEN_EVENTS = 0.0
signal.signal(signal.SIGINT, signal.default_int_handler)
folder = Path(sys.argv[1])
graph.init(folder / "g.omni", schema="node P { k: String @key }").close()
(folder / "p.jsonl").write_text("".join('{"type":"P","data":{"k":"%d"}}\\n' % at for at in range(200_000)))

class Log(io.StringIO):
    pressed = False

    def write(self, text):
        # Tasks are at work on the server by now.
        if '"event": "progress", "stage": "read"' in text and not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)
        return super().write(text)

log, out = Log(), io.StringIO()
before, sys.stderr, sys.stdout = (sys.stderr, sys.stdout), log, out
data = ["--data", str(folder / "p.jsonl")]
status = main(["load", str(folder / "g.omni"), *data, "--mode", "append", "--json"])
sys.stderr, sys.stdout = before
staging = folder / "g.omni" / "__staging"
answer = {
    "status": status,
    "line": json.loads(log.getvalue().splitlines()[-1]),
    "out": out.getvalue(),
    "left": [str(path) for path in staging.rglob("*")] if staging.exists() else [],
    "handler": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
}
"""

STRANGER = """
import sys
from omnigraph.errors import OmnigraphError
from omnigraph.pipeline.session import session
try:
    session(sys.argv[1] + "/;token=guessed")
except OmnigraphError as error:
    answer = {"code": error.code}
"""


def test_a_process_that_took_over_the_number_of_ours_is_left_alone(other: subprocess.Popen[bytes]) -> None:
    folder = record_server(other.pid)
    assert server.find_server() is None
    assert server.lease() is None
    assert not server.stop()
    assert other.poll() is None
    assert not folder.state.exists()


def test_a_state_that_cannot_be_read_counts_as_none() -> None:
    folder = ServerFolder.of_this_environment()
    for text in ("", "{", "{}", '{"port": 1}'):
        folder.state.write_text(text)
        assert folder.read() is None
    folder.state.unlink()


def test_the_state_is_for_the_owner_alone() -> None:
    folder = record_server(0)
    assert (folder.state.stat().st_mode & 0o777, folder.path.stat().st_mode & 0o777) == (0o600, 0o700)
    folder.state.unlink()


def test_a_process_is_known_by_its_identity() -> None:
    identity = "c" * 32
    command = [
        sys.executable,
        "-c",
        "import sys; sys.stdout.write('.'); sys.stdout.flush(); input()",
        identity,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        assert is_ours(process.pid, identity)
        assert not is_ours(process.pid, "d" * 32)
        assert not is_ours(process.pid, "")
        process.communicate(b"\n")
        assert not is_ours(process.pid, identity)


def test_an_unused_server_ends(other: subprocess.Popen[bytes], tmp_path: Path) -> None:
    folder = ServerFolder(tmp_path)
    with folder.users.open("a") as users:
        assert server_supervisor._watch_jvm(folder, WISH, users, other) == 0
        # A new user is turned away until the server is gone.
        with folder.users.open("a") as late, pytest.raises(BlockingIOError):
            fcntl.flock(late, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_a_server_in_use_stays(other: subprocess.Popen[bytes], tmp_path: Path) -> None:
    folder = ServerFolder(tmp_path)
    answers: list[int] = []
    looked = threading.Event()

    class Looking:
        """The process, telling when its keeper has looked a few times."""

        looks = 0

        def wait(self, timeout: float) -> int:
            self.looks += 1
            if self.looks == 5:
                looked.set()
            return other.wait(timeout=timeout)

    def keep() -> None:
        with folder.users.open("a") as users:
            wish, jvm = replace(WISH, idle_minutes=0.0), Looking()
            # A keeper only waits for its process.
            answers.append(server_supervisor._watch_jvm(folder, wish, users, jvm))  # type: ignore[arg-type]

    with folder.users.open("a") as client:
        fcntl.flock(client, fcntl.LOCK_SH)
        watching = threading.Thread(target=keep)
        watching.start()
        assert looked.wait(60)
        assert answers == []
        other.kill()
        watching.join()
    assert answers == [-9]
