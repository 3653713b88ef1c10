"""How a CSV file is written, guessed from its first lines."""

from __future__ import annotations

import re

DELIMITERS = (",", ";", "\t", "|")
_QUOTED = re.compile(rb'"[^"]*"')
_LINES = 20


def sniff_delimiter(data: bytes) -> str:
    """The character between fields: a comma, unless the first line has none and another one occurs in it.

    Of several others the one counts that occurs in later lines as often as in the first.
    """
    lines = [line for line in _QUOTED.sub(b"", data).split(b"\n")[:_LINES] if line.strip()]
    if not lines or b"," in lines[0]:
        return DELIMITERS[0]
    counts = {each: [line.count(each.encode()) for line in lines] for each in DELIMITERS[1:]}
    present = {each: found for each, found in counts.items() if found[0]}
    regular = [each for each, found in present.items() if len(set(found)) == 1]
    return next(iter(regular or present), DELIMITERS[0])
