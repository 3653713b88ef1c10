"""The pages for those who come from other tools show what really happens."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("from-cypher.md", "from-sql.md", "from-networkx.md", "dataframes.md")


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_do_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    sessions = re.findall(r"^```pycon\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(sessions) >= 3
    assert page.count("```") == 2 * len(sessions), "every snippet is run"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    test = doctest.DocTestParser().get_doctest("\n".join(sessions), {}, name, None, 0)
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(test, out=report.append).failed == 0, "".join(report)


def test_performance_begins_with_ten_lines() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    part = page.partition("## In ten lines\n")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\d+\. ", part, re.MULTILINE)) == 10
