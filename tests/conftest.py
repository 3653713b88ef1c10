"""Settings that hold for every test."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# `make test` tries a few inputs per property, the same ones each time; `make fuzz` tries many new ones.
# A property that wants more or fewer takes a multiple of `tests.examples.EXAMPLES`: both forms scale.
settings.register_profile(
    "short",
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz",
    max_examples=int(os.environ.get("OMNIGRAPH_FUZZ") or 50_000),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fuzz" if os.environ.get("OMNIGRAPH_FUZZ") else "short")


# These share one JVM, so they run in one process: each further JVM costs more than it saves.
TOGETHER = "tests/pipeline/"
# These are among them and start a JVM of their own, which any worker can do: the others take longest of all.
WITH_THEIR_OWN = (
    "tests/pipeline/clusters/test_standalone.py",
    "tests/pipeline/test_cluster.py",
    "tests/pipeline/test_parallel_pieces.py",
    "tests/pipeline/test_server.py",
    "tests/pipeline/test_start_cache.py",
)
# In its long form this file takes as long as all others, and each of its tests is many.
APART = "tests/engine/crash/test_crash_matrix.py" if os.environ.get("OMNIGRAPH_TORTURE") else None
# What takes longest begins first, so that no worker is left alone with it in the end.
FIRST = (
    TOGETHER,
    "tests/engine/crash/test_crash_matrix.py",
    "tests/query/test_cases.py",
    *WITH_THEIR_OWN,
    "tests/bench/",
    "tests/engine/processes/",
    "tests/engine/test_aged_graph.py",
    "tests/engine/test_model.py",
    "tests/house/test_site.py",
    "tests/demo/",
    "tests/query/test_against_oracle.py",
    "tests/query/test_near_zero.py",
    "tests/query/test_search.py",
    "tests/storage/test_upkeep.py",
    "tests/test_graph.py",
)


def pytest_collection(session: pytest.Session) -> None:
    """Import all files, each worker from another one on: so each compiles a part of them, and for all."""
    config = session.config
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    files = sorted(path.relative_to(config.rootpath) for path in Path(__file__).parent.rglob("test_*.py"))
    first = len(files) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in files[first:] + files[:first]:
        # A file that cannot be imported is reported when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.with_suffix("").parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by how long their file takes; a file that is named itself is not part of its folder."""
    places = {name: place for place, name in enumerate(FIRST)}
    items.sort(
        key=lambda item: max(
            (places[name] for name in FIRST if item.nodeid.startswith(name)), default=len(FIRST)
        )
    )


def pytest_collection_finish() -> None:
    """Thousands of tests lie in memory until the end: they need no search for garbage.

    There is little of it, and plenty of memory: so it is looked for seldom.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out file by file, because what a file prepares serves all its tests; Spark's to one worker."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist tells no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            if file == APART:
                return nodeid
            return TOGETHER if nodeid.startswith(TOGETHER) and file not in WITH_THEIR_OWN else file

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of the crash matrix was tried: workers cannot print."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    properties = [dict(report.user_properties).get("crash_cells") for report in reports]
    cells = [found for found in properties if found]
    if cells:
        tried, known = sum(found[0] for found in cells), sum(found[1] for found in cells)
        terminalreporter.write_line(f"crash matrix: {tried} of {known} cells (OMNIGRAPH_SEED={cells[0][2]})")


@pytest.fixture
def hears_ctrl_c() -> Iterator[None]:
    """A shell that started the tests in its background made them ignore the signal."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)
