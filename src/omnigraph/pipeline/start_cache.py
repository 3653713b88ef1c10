"""The start-up cache of the JVM: loaded classes, with which the next Spark starts sooner.

The first session starts a low-priority process that runs a small job and saves what the JVM loaded. A cache
belongs to one Java and one Spark; the JVM itself ignores one that does not match.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.pipeline.cache_files import cache_folder, write_atomically
from omnigraph.pipeline.java import Java, find_java
from omnigraph.pipeline.processes import start_detached

SETTING = "OMNIGRAPH_SPARK_START_CACHE"
# A cache takes 100 to 200 MB; those of an uninstalled Spark are removed.
UNUSED_SECONDS = 30 * 24 * 3600
RETRY_SECONDS = 24 * 3600
TRAINING_SECONDS = 900

_OFF = frozenset({"0", "false", "no", "off"})
# From here on Java has ahead-of-time caches; before, archives of classes on top of an archive of its own.
_AHEAD_OF_TIME = 25


@dataclass(frozen=True, slots=True)
class StartCache:
    """Where the cache for one Java and one Spark is, or will be."""

    file: Path
    ahead_of_time: bool

    @property
    def ready(self) -> bool:
        return self.file.exists()

    @property
    def failure(self) -> Path:
        return self.file.with_suffix(".failed")

    @property
    def gate(self) -> Path:
        return self.file.with_suffix(".lock")

    def use_options(self) -> list[str]:
        """Java options that use the cache, if it is there."""
        if not self.ready:
            return []
        os.utime(self.file)
        option = "AOTCache" if self.ahead_of_time else "SharedArchiveFile"
        return [f"-XX:{option}={self.file}"]

    def make_options(self, target: Path) -> list[str]:
        """Java options that write a cache when the JVM ends."""
        option = "AOTCacheOutput" if self.ahead_of_time else "ArchiveClassesAtExit"
        return [f"-XX:{option}={target}"]


def start_cache(java: Java, folder: Path) -> StartCache | None:
    """Return the cache for this Java and the installed Spark; None if the Java supports none."""
    spark = importlib.util.find_spec("pyspark")
    ahead = java.major >= _AHEAD_OF_TIME
    if spark is None or not (ahead or (java.home / "lib" / "server" / "classes.jsa").exists()):
        return None
    from pyspark.version import __version__ as version

    named = hashlib.sha256(f"{java.executable} {java.version} {spark.origin}".encode()).hexdigest()[:12]
    suffix = "aot" if ahead else "jsa"
    return StartCache(folder / f"start-{version}-java{java.major}-{named}.{suffix}", ahead)


def is_enabled() -> bool:
    """Whether caches may be made and used at all."""
    return os.environ.get(SETTING, "").strip().lower() not in _OFF


def make_in_background(cache: StartCache) -> bool:
    """Start making the cache unless it exists, is being made, or failed recently; return whether it did."""
    if cache.ready or not is_enabled() or _failed_recently(cache):
        return False
    with cache.gate.open("a") as gate:
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    start_detached([sys.executable, "-m", "omnigraph.pipeline.start_cache"], log=None)
    return True


def is_being_made(cache: StartCache) -> bool:
    """Whether some process is making the cache right now."""
    if not cache.gate.exists():
        return False
    with cache.gate.open("a") as gate:
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def make_cache(cache: StartCache) -> bool:
    """Make the cache by a run of Spark in its own process; return whether there is one now."""
    with cache.gate.open("a") as gate:
        try:
            fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if not cache.ready:
            _run_training(cache)
    return cache.ready


def _run_training(cache: StartCache) -> None:
    target = cache.file.with_name(f"{cache.file.name}.{os.getpid()}")
    command = [sys.executable, "-m", "omnigraph.pipeline.start_cache_training", str(target)]
    try:
        # The JVM writes the file after Python is gone, and holds the pipe until it has: the end of the output
        # is the end of the work.
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=TRAINING_SECONDS,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode == 0 and target.exists():
            target.replace(cache.file)
            cache.failure.unlink(missing_ok=True)
        else:
            write_atomically(cache.failure, (done.stderr or "the JVM wrote no cache").strip()[-4000:] + "\n")
    except subprocess.TimeoutExpired:
        write_atomically(cache.failure, f"not done after {TRAINING_SECONDS} seconds\n")
    finally:
        for left in cache.file.parent.glob(f"{target.name}*"):
            left.unlink(missing_ok=True)


def _failed_recently(cache: StartCache) -> bool:
    try:
        return time.time() - cache.failure.stat().st_mtime < RETRY_SECONDS
    except FileNotFoundError:
        return False


def remove_unused(folder: Path) -> None:
    """Delete caches that no session has used for long."""
    for file in [*folder.glob("start-*.aot"), *folder.glob("start-*.jsa")]:
        if time.time() - file.stat().st_mtime > UNUSED_SECONDS:
            file.unlink(missing_ok=True)


def main() -> int:
    """Make the cache that sessions of this environment use."""
    os.nice(19)
    folder = cache_folder()
    remove_unused(folder)
    cache = start_cache(find_java(), folder)
    return 0 if cache is not None and make_cache(cache) else 1


if __name__ == "__main__":
    sys.exit(main())
