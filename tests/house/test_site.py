"""The site of docs/: every page has a place in it, and it can be put together without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")


def test_every_page_has_one_place_in_the_site() -> None:
    listed = re.findall(r"^ +- [^:\n]+: ([\w-]+\.md)$", CONFIG, re.MULTILINE)
    pages = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
    assert sorted(listed) == pages


def test_the_site_is_put_together_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    # Strict: a link to a page or a heading that is not there, or a name without a docstring, ends it.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, env={"PATH": "", "NO_MKDOCS_2_WARNING": "1"})
    fetched = re.compile(r"""<(?:script|img|link)\b[^>]*\b(?:src|href)=["']https?:""")
    written = list(tmp_path.glob("*.html"))
    assert len(written) >= len(list((ROOT / "docs").glob("*.md")))
    assert [page.name for page in written if fetched.search(page.read_text(encoding="utf-8"))] == []
