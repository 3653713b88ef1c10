"""Where a user may have a file written: on this machine, and never inside a graph.

Every option and argument that names an output comes through `require_output`, before anything is written.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from omnigraph.errors import BadRequest
from omnigraph.lang.values import escape_unprintable

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/")
"""Also as `Path` has it, which makes one slash of two."""
_PARTS_OF_A_GRAPH = ("__manifest", "__init_claim.json", "__schema_state.json")
"""Any of these directly below a folder makes it the root of a graph, or of one that is being made."""


def require_output(at: str | os.PathLike[str]) -> Path:
    """Return the path of an output; refuse one that is no path, or leads into a graph.

    Links and `..` are followed first.
    """
    text = os.fspath(at)
    shown = escape_unprintable(text)
    if _URI.match(text):
        raise BadRequest(
            f"'{shown}' is not a path on this machine, and outputs are written to files",
            remedy="name a file or a folder",
        )
    if "\0" in text:
        raise BadRequest(f"'{shown}' is not a path", remedy="name a file or a folder")
    real = Path(os.path.realpath(text))
    for folder in (real, *real.parents):
        if any(os.path.lexists(folder / part) for part in _PARTS_OF_A_GRAPH):
            raise BadRequest(
                f"'{shown}' is inside the graph '{escape_unprintable(str(folder))}'",
                remedy="choose a place outside of it",
            )
    return Path(text)
