"""The scoreboard: one workload after the other, each in a process of its own, and one file with it all."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.machine import ROOT, commit, load_average, machine, versions
from bench.workloads import BOARD, Workload

Measure = Callable[[Workload, str], dict[str, Any]]
FAILED = "failed"


def measure_board(
    workloads: Sequence[Workload], size: str, measure: Measure, to: Path
) -> Iterator[dict[str, Any]]:
    """The board after each workload, written to a file each time: a run that is stopped keeps what it has."""
    board: dict[str, Any] = {
        "size": size,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "workloads": {},
    }
    to.parent.mkdir(parents=True, exist_ok=True)
    for workload in workloads:
        before, begun = load_average(), time.monotonic()
        found = measure(workload, size)
        board["workloads"][workload.name] = {
            "title": workload.title,
            "proof": workload.proof,
            "load before": before,
            "load after": load_average(),
            "seconds": time.monotonic() - begun,
            **found,
        }
        to.write_text(json.dumps(board, indent=1) + "\n", encoding="utf-8")
        yield board


def apart(workload: Workload, size: str) -> dict[str, Any]:
    """Measure in a process of its own; what it failed with takes the place of numbers."""
    with tempfile.TemporaryDirectory() as folder:
        to = Path(folder) / "record.json"
        command = [sys.executable, "-m", "bench.workloads", workload.name, size, str(to)]
        done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode == 0:
            found: dict[str, Any] = json.loads(to.read_text(encoding="utf-8"))
            return found
        print(done.stderr, file=sys.stderr)
        lines = done.stderr.strip().splitlines()
        return {FAILED: lines[-1] if lines else f"ended with {done.returncode}"}


def place_of(results: Path) -> Path:
    """The file of a run that begins now."""
    return results / f"board-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}.json"


def last_complete(results: Path) -> dict[str, Any] | None:
    """The newest run of all workloads, or nothing where there was none."""
    for path in sorted(results.glob("board-*.json"), reverse=True):
        board: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if board["workloads"].keys() >= {workload.name for workload in BOARD}:
            return board
    return None
