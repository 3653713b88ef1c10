"""The README shows what really happens."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a reader of the README stands: beside the files of the demo; it is called `/data` there."""
    shutil.copytree(ROOT / "demo", tmp_path / "demo")
    return tmp_path


def _fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def _comparable(text: str, place: Path | None = None) -> str:
    """Commits have other ids every time, and the folder is another one."""
    named = text if place is None else text.replace(str(place), "/data")
    return re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "<id>", named).strip()


def test_the_session_prints_what_the_readme_shows(place: Path) -> None:
    (session,) = _fenced("console")
    parts = re.split(r"^\$ omnigraph (.*)\n", session, flags=re.MULTILINE)[1:]
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    assert len(pairs) >= 5
    for arguments, shown in pairs:
        ran = subprocess.run(
            [sys.executable, "-m", "omnigraph.cli.main", *shlex.split(arguments)],
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
        )
        assert _comparable(ran.stdout + ran.stderr, place) == _comparable(shown), arguments


def test_the_library_example_prints_what_the_readme_shows(place: Path) -> None:
    (program,) = _fenced("python")
    shown = _fenced("")[-1]
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=place, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == shown.strip()


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert missing == []
