"""Proof that files written by Lance are whole.

On a disk that is getting full Lance can lose the end of a data file and report success. So in a folder every
new file is measured before a commit names it; a bucket stores an object whole or not at all.
"""

from __future__ import annotations

import os
from typing import Any

from omnigraph.storage.lance_errors import Trouble, failure
from omnigraph.storage.location import Location


def require_whole(doing: str, location: Location, uri: str, change: Any) -> None:
    """Refuse a staged operation, or a rewrite, whose new files are shorter than Lance meant them to be."""
    if not location.is_local:
        return
    fragments = change.new_fragments if hasattr(change, "new_fragments") else change.fragments
    for file in (file for fragment in fragments for file in fragment.files):
        meant, stored = file.file_size_bytes, os.stat(f"{uri}/data/{file.path}").st_size  # noqa: PTH116
        if meant is not None and stored != meant:
            reason = f"only {stored} of {meant} bytes of a data file were stored"
            raise failure(Trouble.TRANSIENT, doing, uri, reason)
