"""`python -m tests.ui.screenshots FOLDER`: pictures of every area of the explorer (`make screenshots`)."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

from playwright.sync_api import Page, expect

from tests.server.running import policy_options, start_server, with_tokens
from tests.ui.browsing import Visit, open_browser, why_not
from tests.ui.lab import QUERIES, make_lab

SIZE = {"width": 1280, "height": 760}
VALUES = '{"least": 12}'
QUERY = """\
query busy($least: I32) {
  match { $p: Person  $p $w:worksOn $t  $w.hours >= $least }
  return { $p, $p.name as name, $p.role as role, $t.title as project, $w.hours as hours }
  order { hours desc, name }
}
"""


def take(visit: Visit, folder: Path, suffix: str = "") -> None:
    """Take a picture of each area."""
    page = visit.go("explore?node=Person+grace")
    expect(page.locator(".picture[data-settled=true]")).to_be_visible()
    _shoot(page, folder / f"explore{suffix}.png")
    page = visit.go(f"query?q={quote(QUERY)}&p={quote(VALUES)}")
    expect(page.get_by_text("valid", exact=True)).to_be_visible()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("table", name="Result").get_by_role("row").nth(1)).to_be_visible()
    _shoot(page, folder / f"query{suffix}.png")
    page = visit.go("history")
    page.get_by_role("region", name="Commits").get_by_role("button").nth(2).click()
    expect(page.get_by_role("article").first).to_be_visible()
    _shoot(page, folder / f"history{suffix}.png")
    page = visit.go("review?branch=draft%2Froles")
    page.get_by_role("radio", name="theirs").click()
    _shoot(page, folder / f"review{suffix}.png")
    if not suffix:
        page = visit.go("schema")
        expect(page.locator(".picture[data-settled=true]")).to_be_visible()
        _shoot(page, folder / "schema.png")
        page = visit.go("data")
        expect(page.get_by_text("all in order")).to_be_visible()
        _shoot(page, folder / "data.png")


def _shoot(page: Page, file: Path) -> None:
    page.wait_for_load_state("networkidle")
    page.screenshot(path=file)


def main() -> int:
    """Take all pictures of a new graph, on light and on dark ground."""
    if reason := why_not():
        sys.stderr.write(f"error: {reason}\n")
        return 1
    pictures = Path(sys.argv[1])
    pictures.mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=60_000)
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "lab.gq").write_text(QUERIES)
        options = [*policy_options(folder), "--queries", str(folder / "lab.gq")]
        store = make_lab(folder / "lab.omni")
        with (
            start_server(store, folder / "log", *options, env=with_tokens()) as server,
            open_browser() as browser,
        ):
            for scheme, suffix in (("light", ""), ("dark", "-dark")):
                visit = Visit(browser, server, viewport=SIZE, color_scheme=scheme)
                visit.sign_in("root")
                take(visit, pictures, suffix)
    return 0


if __name__ == "__main__":
    sys.exit(main())
