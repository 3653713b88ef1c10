"""Generated documentation says what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.cli.commands import COMMANDS
from omnigraph.cli.reference import PAGES, render_commands, render_errors
from omnigraph.errors import InternalError, OmnigraphError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_fresh(name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"docs/{name} is stale: run `make docs`"


def test_command_reference_does_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = render_commands()
    monkeypatch.setenv("COLUMNS", "40")
    assert render_commands() == wide


def test_command_reference_has_every_command() -> None:
    page = render_commands()
    for name, command in COMMANDS.items():
        assert f"## `omnigraph {name}`" in page
        assert command.help in page


def test_every_error_is_documented_under_a_code_of_its_own() -> None:
    kinds = _descendants(OmnigraphError)
    page = render_errors()
    assert all(f"`{kind.__name__}` | `{kind.code}`" in page for kind in kinds)
    codes = [kind.code for kind in kinds if kind is not InternalError]
    assert len(codes) == len(set(codes))


def _descendants(kind: type[OmnigraphError]) -> list[type[OmnigraphError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in _descendants(child))]


def test_every_setting_is_documented() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    settings = set(re.findall(r"\bOMNIGRAPH_[A-Z_]+\b", source))
    assert {"OMNIGRAPH_DURABILITY", "OMNIGRAPH_LOCK_WAIT"} <= settings
    assert {setting for setting in settings if setting not in pages} == set()
