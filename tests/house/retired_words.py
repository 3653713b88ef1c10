"""Words that are not used any more, in code, cases and docs: `python tests/house/retired_words.py`.

`retired_words.json` says how often each may still occur, mostly 0: "in vain" stays in the JSON member
`in_vain` of the doctor and of a cleanup, which scripts read, and in their tests. A count may only fall;
`--list WORD` shows where a word stands, `--record` notes lower counts.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ALLOWED = Path(__file__).with_suffix(".json")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
CODE = ("src", "tests", "bench", "demo")
CASES = (".gq", ".gqt", ".md", ".pg", ".pgt", ".st", ".txt", ".wt")
"""Endings of the cases of tests; recorded figures and sample data are left out."""
NAMING = ("retired_words.py", "test_retired_words.py", "measure.py")
"""Files of this folder that name the words in order to find them."""

# In names words are joined by underscores: a letter before or after is what makes it another word.
WORDS = {
    word: re.compile(rf"(?<![a-z]){pattern}(?![a-z])", re.I)
    for word, pattern in {
        "told": "told",
        "whoever": "who(?:m)?ever",
        "nobody": "nobody",
        "anew": "anew",
        "in vain": "in[ _]vain",
        "mend": "mend(?:s|ed|ing)?",
        "outside omnigraph": "past (?:omnigraph|the door)",
        "the commit protocol": "(?:the )?one door",
        "incarnation": "li(?:fe|ves) of (?:a|the|its|each|one) (?:branch|fork|name)",
        "missing bytes": "hollow",
    }.items()
}


def files() -> Iterator[Path]:
    """Code, cases and docs; generated pages follow the source."""
    naming = {Path(__file__).with_name(name) for name in NAMING}
    for folder in CODE:
        yield from sorted(set((ROOT / folder).rglob("*.py")) - naming)
    yield from sorted(path for path in (ROOT / "tests").rglob("*") if path.suffix in CASES)
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from (ROOT / name for name in PAGES)


def occurrences() -> Iterator[tuple[str, str]]:
    """Each retired word, with the line that it stands in."""
    for path in files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for word, pattern in WORDS.items():
                for _ in pattern.findall(line):
                    yield word, f"{path.relative_to(ROOT)}:{number}: {line.strip()}"


def count() -> Counter[str]:
    """How often each word occurs."""
    return Counter(word for word, _ in occurrences())


def allowed() -> dict[str, int]:
    """How often each word may occur."""
    found: dict[str, int] = json.loads(ALLOWED.read_text(encoding="utf-8"))
    return found


def main(arguments: list[str]) -> int:
    """Report words that occur too often; the exit code says whether there are any."""
    if arguments[:1] == ["--list"]:
        print("\n".join(line for word, line in occurrences() if word in arguments[1:]))
        return 0
    found = count()
    if arguments == ["--record"]:
        ALLOWED.write_text(json.dumps({word: found[word] for word in WORDS}, indent=2) + "\n")
        return 0
    limits = allowed()
    over = {word: number for word, number in found.items() if number > limits.get(word, 0)}
    for word, number in over.items():
        print(f"retired word: '{word}' occurs {number} times, at most {limits.get(word, 0)} are left")
        print("\n".join(f"  {line}" for other, line in occurrences() if other == word))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
