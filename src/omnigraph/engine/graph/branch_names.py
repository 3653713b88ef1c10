"""Parse and check names of branches, and of tags, which follow the same rules."""

from __future__ import annotations

import re
from urllib.parse import quote

from omnigraph.engine.graph.layout import LOCK_BRANCH
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.errors import InvalidName

SCHEMA_APPLY_LOCK = LOCK_BRANCH
"""Exists while a schema apply runs; not a branch of a user."""
LONGEST_NAME = 200
"""Bytes, `/` counting as three: a whole name becomes the name of one file, with an ending."""

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")


def parse_branch_name(text: str) -> str:
    """Return the branch name in a user's text, main included; raises `InvalidName`."""
    return parse_name(text, "branch")


def parse_name(text: str, noun: str) -> str:
    """Return the name in a user's text; raises `InvalidName`, which calls it the name of a `noun`."""
    given: object = text
    if not isinstance(given, str):
        raise InvalidName(repr(given), f"the name of a {noun} is a text, not {type(given).__name__}")
    name = given.strip()
    if not name:
        raise InvalidName(text, f"the name of a {noun} must not be empty")
    if name == SCHEMA_APPLY_LOCK:
        raise InvalidName(name, f"'{name}' is reserved for schema changes", remedy="choose another name")
    if len(quote(name, safe="", errors="replace")) > LONGEST_NAME:
        raise InvalidName(
            name,
            f"{noun} name '{name[:40]}...' is too long",
            remedy=f"use at most {LONGEST_NAME} characters, counting '/' as 3",
        )
    for segment in name.split("/"):
        _check_segment(name, segment, noun)
    if name.endswith(".lock"):
        raise InvalidName(name, f"{noun} name '{name}' must not end with '.lock'")
    if name.startswith(f"{MAIN}/"):
        raise InvalidName(name, f"{noun} name '{name}' is below '{MAIN}'", remedy="choose another first part")
    return name


def _check_segment(name: str, segment: str, noun: str) -> None:
    if not segment:
        raise InvalidName(
            name, f"{noun} name '{name}' has an empty part", remedy="use single '/' inside only"
        )
    if not _SEGMENT.fullmatch(segment):
        raise InvalidName(
            name,
            f"{noun} name {name!r} has characters that are not allowed",
            remedy="use letters, digits, '.', '_' and '-', with '/' between parts",
        )
    if segment == "." or ".." in segment:
        raise InvalidName(name, f"{noun} name '{name}' must not have '.' as a part, nor '..'")
