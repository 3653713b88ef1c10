"""A browser at the explorer, and what it must not do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from omnigraph.server.ui_page import is_page_built
from tests.server.running import TOKENS, RunningServer

AXE = Path(__file__).parents[2] / "ui/node_modules/axe-core/axe.min.js"
ARGUMENTS = ["--no-sandbox", "--enable-unsafe-swiftshader"]
"""A container has no user namespaces, and no graphics card."""
PATIENCE = 60_000
"""How many milliseconds to wait for something to appear, on a machine that is busy with other tests."""


def why_not() -> str | None:
    """Return why the tests of the page cannot run here, with the command that helps."""
    if not is_page_built() or not AXE.is_file():
        return "the explorer is not built: run `make ui`"
    if find_chromium() is None:
        return "no Chromium was found: run `apt-get install -y chromium`"
    return None


def find_chromium() -> str | None:
    """Return the browser of this machine."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium without a window."""
    with sync_playwright() as drivers:
        browser = drivers.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page of one actor, and the problems it had since they were last taken."""

    def __init__(self, browser: Browser, server: RunningServer, **settings: Any) -> None:
        self._browser = browser
        self._server = server
        size = {"width": 1280, "height": 800}
        self.context = browser.new_context(**{"viewport": size, "reduced_motion": "reduce", **settings})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self._problems: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self._problems.append(f"page error: {error}"))
        self.page.on("request", self._see)

    def beside(self, actor: str, **settings: Any) -> Visit:
        """Return a visit of another actor, with cookies of its own."""
        other = Visit(self._browser, self._server, **settings)
        other.sign_in(actor)
        return other

    def sign_in(self, actor: str) -> None:
        """Open the page and exchange the token of an actor."""
        self.page.goto(f"{self._server.url}/ui")
        self.page.get_by_label("Token").fill(TOKENS[actor])
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("navigation", name="Areas").wait_for()
        # Before the exchange the server said once, as it must, that there is no session.
        self._problems = [one for one in self._problems if "401" not in one]

    def go(self, place: str) -> Page:
        """Open an area, with a moment and whatever else its address can say."""
        self.page.goto(f"{self._server.url}/ui#/{place}")
        return self.page

    def take_problems(self) -> list[str]:
        """Return the problems so far, and forget them."""
        found, self._problems = self._problems, []
        return found

    def find_serious(self) -> list[str]:
        """Return what axe-core finds that keeps people from using the page."""
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations"
            ".filter(v => ['serious', 'critical'].includes(v.impact))"
            ".map(v => v.id + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | ')))"
        )
        return [str(one) for one in found]

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._problems.append(f"console: {message.text}")

    def _see(self, request: Request) -> None:
        host = urlsplit(request.url).netloc
        if host and host != f"{self._server.host}:{self._server.port}":
            self._problems.append(f"request to {request.url}")
