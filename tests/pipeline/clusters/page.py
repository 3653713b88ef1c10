"""The commands of docs/clusters-spark.md, taken from the page itself."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "clusters-spark.md"
_SECTION = re.compile(r"^#{2,3} (.+?)$(.*?)(?=^#{2,3} |\Z)", re.M | re.S)
_BLOCK = re.compile(r"^```(?P<language>sh|python)\n(.*?)^```$", re.M | re.S)


def blocks(section: str) -> list[str]:
    """The commands and programs below a heading, in order."""
    text = dict(_SECTION.findall(_without_comments(PAGE.read_text(encoding="utf-8"))))[section]
    return [code.replace("\x00", "#") for _, code in _BLOCK.findall(text)]


def _without_comments(text: str) -> str:
    """Hide `#` at the beginning of lines of code, which are not headings."""
    return _BLOCK.sub(lambda block: block[0].replace("\n#", "\n\x00"), text)
