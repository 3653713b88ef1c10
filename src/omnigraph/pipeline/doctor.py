"""Checks what the data pipeline needs, and says how to install what is missing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import JavaNotFound
from omnigraph.pipeline import server, start_cache
from omnigraph.pipeline.cache_files import CACHE_SETTING, cache_folder
from omnigraph.pipeline.java import find_java

SPARK = "4.3.0"
EXTRA = "pip install 'omnigraph[spark]'"
# A JVM of 2 GB that is mostly empty, Python here, and a worker for each of two cores.
LEAST_MEMORY = 2 << 30


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    ok: bool
    found: str
    remedy: str | None = None


def examine() -> list[Check]:
    """Run all checks; nothing is started."""
    return [
        *_check_packages(),
        _check_java(),
        _check_memory(),
        _check_cache_folder(),
        _check_start_cache(),
        _check_server(),
    ]


def _check_packages() -> Iterator[Check]:
    yield _check_package(
        "pyspark", lambda found: found == SPARK, f"Spark {SPARK} is what omnigraph is tested with: {EXTRA}"
    )
    yield _check_package(
        "pandas",
        lambda found: 2 <= int(found.split(".")[0]) < 3,
        "Spark 4 needs pandas 2: pip install 'pandas>=2.2,<3'",
    )
    yield _check_package("pyarrow", bool, EXTRA)
    yield _check_package("grpcio", bool, f"sc:// masters and the warm server need it: {EXTRA}")


def _check_package(name: str, fits: Callable[[str], bool], remedy: str) -> Check:
    try:
        found = version(name)
    except PackageNotFoundError:
        return Check(name, False, "not installed", remedy)
    return Check(name, True, found) if fits(found) else Check(name, False, found, remedy)


def _check_java() -> Check:
    try:
        java = find_java()
    except JavaNotFound as missing:
        return Check("java", False, missing.message, missing.remedy)
    return Check("java", True, f"{java.version} at {java.executable} ({java.origin})")


def _check_memory() -> Check:
    free = available_memory()
    if free is None:
        return Check("memory", True, "unknown")
    found = f"{free / (1 << 30):.1f} GB available"
    if free < LEAST_MEMORY:
        return Check(
            "memory", False, found, "Spark needs about 2 GB; end other programs, or use --engine local"
        )
    return Check("memory", True, found)


def available_memory() -> int | None:
    """Bytes that new processes could use, if the system reports it: the less of machine and container."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    free = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
    limit, used = (_read_number(Path("/sys/fs/cgroup") / name) for name in ("memory.max", "memory.current"))
    if free is None or limit is None or used is None:
        return free
    return min(free, max(0, limit - used))


def _read_number(file: Path) -> int | None:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _check_cache_folder() -> Check:
    try:
        folder = cache_folder()
    except OSError as failure:
        return Check("cache folder", False, str(failure), f"set {CACHE_SETTING} to a folder you may write to")
    if not os.access(folder, os.W_OK):
        return Check(
            "cache folder", False, f"{folder} is read-only", f"set {CACHE_SETTING} to another folder"
        )
    return Check("cache folder", True, str(folder))


def _check_start_cache() -> Check:
    """Never a fault: without the cache Spark only starts more slowly."""
    try:
        cache = start_cache.start_cache(find_java(), cache_folder())
    except (JavaNotFound, OSError):
        cache = None
    if cache is None or not start_cache.is_enabled():
        return Check(
            "start-up cache", True, "off" if not start_cache.is_enabled() else "not possible with this Java"
        )
    if cache.ready:
        return Check("start-up cache", True, f"{cache.file} ({cache.file.stat().st_size >> 20} MB)")
    if start_cache.is_being_made(cache):
        return Check("start-up cache", True, "being made")
    if cache.failure.exists():
        return Check("start-up cache", True, f"could not be made, see {cache.failure}")
    return Check("start-up cache", True, "will be made after the first session")


def _check_server() -> Check:
    try:
        found = server.find_server()
    except OSError:
        found = None
    return Check("warm server", True, f"{found.address} on {found.master}" if found else "not running")
