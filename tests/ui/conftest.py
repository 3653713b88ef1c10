"""One server and one browser for the tests of the explorer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.server.running import RunningServer, policy_options, start_server, with_tokens
from tests.ui.browsing import PATIENCE, Visit, open_browser, why_not
from tests.ui.lab import QUERIES, make_lab


@pytest.fixture(scope="session")
def lab_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with tokens and a policy, on the graph of the lab."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "lab.gq").write_text(QUERIES)
    options = [*policy_options(folder), "--queries", str(folder / "lab.gq")]
    with start_server(
        make_lab(folder / "lab.omni"), folder / "server.log", *options, env=with_tokens()
    ) as server:
        yield server


@pytest.fixture(scope="session")
def root(lab_server: RunningServer) -> Iterator[Visit]:
    """The explorer in a browser, signed in as the actor that may do everything."""
    if reason := why_not():
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE)
    with open_browser() as browser:
        visit = Visit(browser, lab_server)
        visit.sign_in("root")
        yield visit


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test with a page: no error in the console, and no request to another host."""
    yield
    if "root" in request.fixturenames:
        visit: Visit = request.getfixturevalue("root")
        assert visit.take_problems() == []


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A file of people to load."""
    file = tmp_path / "people.csv"
    file.write_text("handle,name,age\nzoe,Zoe Park,33\nada,Ada Lovelace,37\n")
    return file
