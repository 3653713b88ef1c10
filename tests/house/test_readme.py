"""The README and the quickstart show what really happens."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.cli.main import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {"README.md": README, "quickstart.md": (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")}
FENCE = r"^```{}\n(.*?)^```$"


def _find_fenced(page: str, language: str) -> list[str]:
    return re.findall(FENCE.format(language), page, flags=re.DOTALL | re.MULTILINE)


def _comparable(text: str, place: Path | None = None) -> str:
    """Commits have other ids every time, and the folder is another one."""
    named = text if place is None else text.replace(str(place), "/data")
    return re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "<id>", named).strip()


def _stand(page: str, place: Path) -> None:
    """Put a reader where the page has them: beside the demo's files and what the page lets them save."""
    shutil.copytree(ROOT / "demo", place / "demo", ignore=shutil.ignore_patterns("out"))
    saved = r"^Save this as `([\w.]+)`:\n\n```\w+\n(.*?)^```$"
    for name, text in re.findall(saved, page, flags=re.DOTALL | re.MULTILINE):
        (place / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_its_commands_print(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = PAGES[name]
    _stand(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    parts = re.split(r"^\$ omnigraph (.*)\n", "".join(_find_fenced(page, "console")), flags=re.MULTILINE)
    assert parts[0] == ""
    commands = list(zip(parts[1::2], parts[2::2], strict=True))
    assert len(commands) >= 10
    for arguments, shown in commands:
        main(shlex.split(arguments))
        printed = capsys.readouterr()
        assert _comparable(printed.out + printed.err, tmp_path) == _comparable(shown), arguments
    (program,) = _find_fenced(page, "python")
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == _find_fenced(page, "")[-1].strip()


def test_what_the_readme_says_to_make_is_a_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r"\bmake ([a-z]+)\b", "\n".join(PAGES.values())))
    assert {"install", "demo"} <= named
    assert {target for target in named if not re.search(rf"^{target}:.*## ", makefile, re.MULTILINE)} == set()


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README)
    assert targets
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert missing == []


def test_every_page_is_in_the_readme() -> None:
    # The generated reference has content only on the site, and the site has a first page of its own.
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md", "reference.md"}
    assert {name for name in pages if f"(docs/{name})" not in README} == set()
