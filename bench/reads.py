"""Reads of a social network and of documents, beside other databases that run in the process of their user.

Answers are compared before they are timed. Peers that are not installed are left out; they are no
dependencies of the project.
"""

from __future__ import annotations

import os
import platform
from importlib.metadata import version

from bench import reads_documents, reads_social
from bench.comparison import OURS, sections_of
from bench.measure import Result
from bench.reads_documents import Documents
from bench.reads_social import Social


def run(*, short: bool = False) -> Result:
    """All sections; the name of a timing says which section, task and database it is of."""
    load = os.getloadavg()[0]
    parts = [Social(short=short).measure(), Documents(short=short).measure()]
    sections = [section for part in parts for section in part.sections]
    return Result(
        name="reads",
        timings=tuple(timing for section in sections for timing in section.timings()),
        yardsticks=(),
        targets={},
        facts={
            **{name: fact for part in parts for name, fact in part.facts.items()},
            "versions": _versions(),
            "processors": os.cpu_count(),
            "load before and after": [round(load, 1), round(os.getloadavg()[0], 1)],
            "python": platform.python_version(),
            "ratios": {section.title: section.all_ratios() for section in sections},
        },
    )


def table(result: Result) -> str:
    """A table for each section; a ratio below 1 means that we are faster."""
    facts = [f"  {name}: {fact}" for name, fact in result.facts.items() if name not in {"ratios", "memory"}]
    memory = [f"  {_memory(name, taken)}" for name, taken in result.facts["memory"].items()]
    shown = [section.text() for section in sections_of(result.timings)]
    return "\n\n".join(["\n".join([result.name, *facts]), *shown, "\n".join(["memory of a result", *memory])])


def _memory(name: str, taken: dict[str, int]) -> str:
    grown = taken["peak"] - taken["before"]
    times = grown / taken["result"]
    return (
        f"{name}: {taken['rows']:,} rows of {taken['result'] / 1e6:.0f} MB, "
        f"at most {grown / 1e6:.0f} MB more than before ({times:.1f} times the result)"
    )


def _versions() -> dict[str, str]:
    peers = {**reads_social.PEERS, **reads_documents.PEERS}
    found = {peer.name: version(peer.package) for peer in peers.values() if peer.installed}
    return {**found, OURS: version("omnigraph"), "lance": version("pylance")}
