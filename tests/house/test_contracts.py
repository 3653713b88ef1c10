"""The import contracts bite: each line of code here is one the build must refuse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def broken_contracts(project: Path) -> list[str]:
    # Installed next to the interpreter that runs the tests.
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(project / "src"), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False, env=environment)
    broken = re.findall(r"^(.+) BROKEN\b", done.stdout, re.M)
    assert (done.returncode == 0) == (broken == []), done.stdout + done.stderr
    return broken


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the source that a test may spoil."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("errors/base.py", "import omnigraph.lang", "Calls go one way through the rooms"),
        ("lang/stray.py", "import omnigraph.cli.main", "Calls go one way through the rooms"),
        ("engine/stray.py", "import omnigraph.pipeline.stray", "Calls go one way through the rooms"),
        ("attic/stray.py", "", "Calls go one way through the rooms"),
        ("engine/stray.py", "import lance", "Only storage imports lance and obstore"),
        ("cli/stray.py", "import pyspark.sql", "Only the pipeline imports pyspark"),
        ("lang/stray.py", "import rich", "Only the command line imports typer and rich"),
        ("lang/stray.py", "import pathlib", "The languages read and write nothing"),
        ("errors/base.py", "import msgspec", "The errors import no other package"),
    ],
)
def test_a_call_the_wrong_way_breaks_the_build(project: Path, module: str, line: str, contract: str) -> None:
    add_line(project, "pipeline/stray.py", "")
    add_line(project, module, line)
    assert contract in broken_contracts(project)


def test_storage_may_import_lance_and_others_may_use_storage(project: Path) -> None:
    add_line(project, "storage/stray.py", "import lance")
    add_line(project, "engine/graph/stray.py", "import omnigraph.storage.stray")
    assert broken_contracts(project) == []


def add_line(project: Path, module: str, line: str) -> None:
    path = project / "src" / "omnigraph" / module
    path.parent.mkdir(exist_ok=True)
    (path.parent / "__init__.py").touch()
    with path.open("a", encoding="utf-8") as source:
        source.write(f"\n{line}\n")
