"""The maps of the house name what is there: its page, and the docstrings that larger rooms begin with."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "omnigraph"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

FILE = re.compile(r"(?<![\w*./])(?:\w+/)*\w+\.py\b")
ROOM = re.compile(r"(?<![\w./])\w+/(?=[\s,]|$)", re.M)
LARGE = 15
"""A room with more files than this begins with a map."""

ROOMS = sorted(path.parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE)


def name_of(room: Path) -> str:
    return room.relative_to(SOURCE).as_posix()


def map_of(room: Path) -> str:
    return ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""


def test_every_file_that_the_page_names_exists() -> None:
    known = [
        f"/{path.relative_to(ROOT).as_posix()}"
        for room in (SOURCE, ROOT / "tests")
        for path in room.rglob("*.py")
    ]
    named = set(FILE.findall(PAGE))
    assert len(named) > 30
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in known)] == []


def test_every_room_is_on_the_page() -> None:
    assert [name_of(room) for room in ROOMS if f"{room.name}/" not in PAGE] == []


@pytest.mark.parametrize("room", ROOMS, ids=name_of)
def test_a_map_names_files_and_rooms_that_are_there(room: Path) -> None:
    text = map_of(room)
    assert text, "a room says in its docstring what it is for"
    assert [name for name in FILE.findall(text) if not (room / name).is_file()] == []
    assert [name for name in ROOM.findall(text) if not (room / name).is_dir()] == []


@pytest.mark.parametrize(
    "room", [room for room in ROOMS if len(list(room.glob("*.py"))) > LARGE], ids=name_of
)
def test_a_large_room_begins_with_a_map(room: Path) -> None:
    files = [path.name for path in room.glob("*.py") if path.name != "__init__.py"]
    named = set(FILE.findall(map_of(room)))
    assert len(named) >= len(files) // 3
