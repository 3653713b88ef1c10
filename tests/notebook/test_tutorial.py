"""The tutorial runs from top to bottom and shows what it talks about."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.ipynb"

# In a process of its own, as from a terminal; the first cell that fails ends it.
RUN = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[1])
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each cell with code shows last."""
    folder = tmp_path_factory.mktemp("tutorial")
    copy = folder / "tutorial.ipynb"
    copy.write_bytes(TUTORIAL.read_bytes())
    command = [sys.executable, "-c", RUN, str(copy)]
    homes = {"IPYTHONDIR": str(folder / "ipython"), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    environment = {**os.environ, **homes}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    cells = [cell for cell in json.loads(copy.read_text(encoding="utf-8"))["cells"] if "outputs" in cell]
    return [cell["outputs"][-1]["data"] for cell in cells if cell["outputs"]]


def test_every_part_of_the_tutorial_has_its_display(shown: list[dict[str, Any]]) -> None:
    tables = ["".join(data["text/html"]) for data in shown if "text/html" in data]
    captions = [table.partition("<caption>")[2].partition(" ")[0] for table in tables]
    assert captions == ["Graph", "Graph", "4", "2", "Branches", "Diff", "Merging", "Merged", "Commits"]
    pictures = [data for data in shown if "application/vnd.jupyter.widget-view+json" in data]
    assert ["".join(data["text/plain"]) for data in pictures] == [
        "<Picture of 6 nodes and 6 edges>",
        "<Picture of 5 nodes and 5 edges>",
    ]
    assert all("image/png" in data for data in pictures)
    assert "".join(shown[-1]["text/plain"]) == "(6, 5)"


def test_the_tutorial_is_kept_without_output() -> None:
    cells = json.loads(TUTORIAL.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
