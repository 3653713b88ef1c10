"""The Python environment that docs/clusters-spark.md ships, made of what is installed here."""

from __future__ import annotations

import re
import shutil
import venv
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

import omnigraph

WANTED = "omnigraph[s3]"
"""With pandas, which tasks of Spark need."""
_UNUSED = re.compile(r"(^|/)(tests|include|__pycache__)/|/libarrow_flight|^bin/|^\.\.")


def make_environment(folder: Path) -> None:
    """Fill a virtual environment with the packages of omnigraph, without downloads."""
    venv.create(folder, symlinks=True, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    for found in _closure([WANTED, "pandas"]):
        for file in found.files or ():
            if not _UNUSED.search(file.as_posix()):
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(str(found.locate_file(file)), target)
    # Installed here by a link to the source.
    shutil.copytree(
        Path(omnigraph.__file__).parent,
        packages / "omnigraph",
        ignore=shutil.ignore_patterns("__pycache__"),
    )


def _closure(requirements: list[str]) -> list[Distribution]:
    found: dict[tuple[str, frozenset[str]], Distribution] = {}
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        one = waiting.pop()
        key = (one.name.lower(), frozenset(one.extras))
        if key in found:
            continue
        found[key] = distribution(one.name)
        for text in found[key].requires or ():
            inner = Requirement(text)
            marker = inner.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *one.extras)):
                waiting.append(inner)
    return list({one.name: one for one in found.values()}.values())
