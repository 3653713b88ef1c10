"""The README shows what really happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _fenced(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def test_the_session_prints_what_the_readme_shows() -> None:
    (session,) = _fenced("console")
    parts = re.split(r"^\$ omnigraph (.*)\n", session, flags=re.MULTILINE)[1:]
    pairs = list(zip(parts[::2], parts[1::2], strict=True))
    assert pairs
    for arguments, shown in pairs:
        ran = subprocess.run(
            [sys.executable, "-m", "omnigraph.cli.main", *arguments.split()],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ran.stdout + ran.stderr).strip() == shown.strip(), arguments


def test_the_library_example_prints_what_the_readme_shows() -> None:
    (program,) = _fenced("python")
    shown = _fenced("")[-1]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == shown.strip()


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert missing == []
