"""A failure is reported in a line or two; the whole stack only on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.cli.main import main


@pytest.mark.parametrize(("options", "stack"), [([], False), (["--debug"], True)])
def test_the_stack_is_shown_on_request(
    options: list[str], stack: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*options, "branch", "list", "--store", str(tmp_path / "nothing")]) == 1
    shown = capsys.readouterr().err
    assert ("Traceback" in shown) == stack
    assert "error[graph_not_found]" in shown
