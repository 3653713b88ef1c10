"""How far a command is: lines in a log, events for a script, nothing where it is not wanted."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph.cli import progress
from omnigraph.cli.main import main
from omnigraph.cli.progress import plain_line
from omnigraph.progress import Progress, ProgressEvent

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path) -> str:
    file = tmp_path / "people.jsonl"
    lines = [{"type": "Person", "data": {"handle": f"p{at}"}} for at in range(3)]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return str(file)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines from the first moment on."""
    monkeypatch.setattr(progress, "PATIENCE", 0.0)


def load(uri: str, data: str, *more: str) -> list[str]:
    return ["load", uri, "--data", data, "--mode", "append", *more]


@pytest.mark.usefixtures("at_once")
def test_a_log_hears_the_begin_and_the_end_of_each_stage(uri: str, data: str, capsys: Capture) -> None:
    assert main(load(uri, data)) == 0
    begun, ended, echo = capsys.readouterr().err.splitlines()
    assert begun == "read: begun"
    assert ended.startswith("read: done in ")
    assert "1 of 1 tasks, 3 rows (" in ended
    assert echo.startswith("omnigraph load → ")


@pytest.mark.usefixtures("at_once")
def test_quiet_means_no_lines_at_all(uri: str, data: str, capsys: Capture) -> None:
    assert main(load(uri, data, "--quiet")) == 0
    assert capsys.readouterr().err == ""
    assert main(load(uri, data, "--quiet", "--json")) == 1
    assert json.loads(capsys.readouterr().err)["code"] == "key_conflict"


def test_a_short_command_says_nothing_of_its_stages(uri: str, data: str, capsys: Capture) -> None:
    assert main(load(uri, data)) == 0
    (echo,) = capsys.readouterr().err.splitlines()
    assert echo.startswith("omnigraph load → ")


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("between", "lines"), [(3600.0, 2), (0.0, 3)])
def test_what_is_between_begin_and_end_is_reported_now_and_then(
    uri: str, data: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, between: float, lines: int
) -> None:
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", between)
    assert main(load(uri, data)) == 0
    shown = [line for line in capsys.readouterr().err.splitlines() if line.startswith("read: ")]
    assert len(shown) == lines


@pytest.mark.parametrize(
    ("arguments", "stage"),
    [
        (["optimize"], "optimize"),
        (["cleanup", "--keep", "1", "--confirm"], "cleanup"),
        (["export", "--output", "OUT"], "export"),
        (["algorithm", "pagerank", "--engine", "local"], "pagerank"),
    ],
)
def test_a_script_reads_events_and_one_result(
    uri: str,
    data: str,
    tmp_path: Path,
    run: Callable[..., str],
    capsys: Capture,
    arguments: list[str],
    stage: str,
) -> None:
    run(*load(uri, data))
    words = [str(tmp_path / "out.ndjson") if word == "OUT" else word for word in arguments]
    place = ["--store", uri] if words[0] == "algorithm" else [uri]
    assert main([*words, *place, "--json"]) == 0
    shown = capsys.readouterr()
    json.loads(shown.out)
    events = [json.loads(line) for line in shown.err.splitlines() if line.startswith("{")]
    assert {one["stage"] for one in events} == {stage}
    assert [one["event"] for one in events][:: len(events) - 1] == ["begun", "ended"]
    assert events[-1]["tasks"] in (None, events[-1]["tasks_done"])
    assert set(events[-1]) == set(Progress("x").to_json())


def test_the_failure_follows_the_events_on_a_line_of_its_own(
    uri: str, data: str, run: Callable[..., str], capsys: Capture
) -> None:
    run(*load(uri, data))
    assert main(load(uri, data, "--json")) == 1
    *events, failure = map(json.loads, capsys.readouterr().err.splitlines())
    assert [one["event"] for one in events] == ["begun", "ended"]
    assert failure["code"] == "key_conflict"


def test_a_terminal_shows_a_bar_that_is_gone_in_the_end(
    uri: str, data: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        assert main(load(uri, data)) == 0
        print("end", file=terminal, flush=True)
        shown = b""
        while not shown.endswith(b"end\r\n"):
            shown += os.read(ours, 4096)
    os.close(ours)
    assert capsys.readouterr().out.startswith("loaded ")
    bar, cleared, after = shown.decode().rpartition("\x1b[2K")
    assert "read" in bar
    assert "1 of 1 tasks" in bar
    assert "3 rows" in bar
    assert cleared
    assert "read" not in after
    assert "omnigraph load → " in after


class Unread(io.StringIO):
    """A log without a reader."""

    def write(self, text: str) -> int:
        if text.startswith("read"):
            raise BrokenPipeError
        return super().write(text)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Unread())


@pytest.mark.usefixtures("at_once", "unread")
def test_a_log_without_a_reader_does_not_stop_the_work(uri: str, data: str, capsys: Capture) -> None:
    assert main(load(uri, data)) == 0
    assert capsys.readouterr().out.startswith("loaded ")


def test_a_line_tells_what_is_known() -> None:
    now = Progress(
        "read", tasks_done=3, tasks=12, rows=1_500_000, bytes=2_500_000, all_bytes=10_000_000, seconds=5
    )
    assert plain_line(now) == (
        "read: 3 of 12 tasks, 25%, 1,500,000 rows (300,000/s), 2.5 MB (500.0 kB/s), 15 s left"
    )
    assert plain_line(Progress("pagerank", tasks_done=7, seconds=2)) == "pagerank: 7 tasks"
    assert plain_line(Progress("ids", ProgressEvent.ENDED, seconds=0.25)) == "ids: done in 0.2 s"
