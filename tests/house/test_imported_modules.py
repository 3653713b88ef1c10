"""A command imports what it needs: its modules, and large packages, are listed in `imported_modules/`.

`OMNIGRAPH_UPDATE_GOLDEN=1` writes the lists of this run. Look at what is new in them: a module that only
another command needs is imported by the function that needs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import graph

GOLDEN = Path(__file__).with_name("imported_modules")
UPDATE = bool(os.environ.get("OMNIGRAPH_UPDATE_GOLDEN"))
PACKAGES = {
    "lance",
    "msgspec",
    "numpy",
    "obstore",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
    "typer",
}
POINT_QUERY = 'query one() { match { $p: Person { handle: "ada" } } return { $p.handle } }'

RUNS = {
    "help": ["--help"],
    "query": ["query", "--query-string", POINT_QUERY, "--store", "team.omni"],
    "branch-list": ["branch", "list", "--store", "team.omni"],
    "commit-list": ["commit", "list", "--store", "team.omni"],
}
COMMAND = """
import json, sys
from omnigraph.cli.start import command
status = command()
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
raise SystemExit(status)
"""
OPENS = """
import json, sys
import omnigraph
omnigraph.open("team.omni", read_only=True).close()
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("imports")
    with graph.init(made / "team.omni", schema="node Person { handle: String @key }") as team:
        team.load([{"handle": "ada"}], type="Person", mode="merge")
    return made


def list_imports(folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    modules: list[str] = json.loads(done.stderr.splitlines()[-1])
    return [name for name in modules if name.partition(".")[0] == "omnigraph" or name in PACKAGES]


def require_golden(name: str, found: list[str]) -> None:
    at = GOLDEN / f"{name}.txt"
    if UPDATE:
        at.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == at.read_text(encoding="utf-8").split()


@pytest.mark.parametrize("name", RUNS)
def test_a_command_imports_the_modules_on_its_list(name: str, folder: Path) -> None:
    require_golden(name, list_imports(folder, COMMAND, *RUNS[name]))


def test_opening_a_graph_imports_the_modules_on_its_list(folder: Path) -> None:
    require_golden("python-open", list_imports(folder, OPENS))


def test_every_list_belongs_to_a_command() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == {*RUNS, "python-open"}
