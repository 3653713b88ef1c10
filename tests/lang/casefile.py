"""Reader of the text case files in `tests/lang/cases`; the format is described in the README there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    """One case: a name and its sections in the order of the file."""

    name: str
    sections: list[tuple[str, str]]
    path: Path
    line: int

    def section(self, name: str) -> str | None:
        """The text of the first section of this name, without its last newline."""
        return next((text for found, text in self.sections if found == name), None)

    def __str__(self) -> str:
        return f"{self.path.stem}:{self.name}"


def read_cases(path: Path) -> list[Case]:
    """All cases of a file; text before the first `=== name` is commentary."""
    cases: list[Case] = []
    lines: list[str] | None = None
    # Only "\n" ends a line, so that a case may hold a carriage return or an odd line separator.
    for number, line in enumerate(path.read_bytes().decode("utf-8").split("\n"), 1):
        if line.startswith("=== "):
            cases.append(Case(line[4:].strip(), [], path, number))
            lines = None
        elif line.startswith("--- ") and cases:
            lines = []
            cases[-1].sections.append((line[4:].strip(), ""))
        elif lines is not None:
            lines.append(line)
            cases[-1].sections[-1] = (cases[-1].sections[-1][0], "\n".join(lines).rstrip("\n"))
        elif cases and line.strip() and not line.startswith("#"):
            raise ValueError(f"{path.name}:{number}: text outside a section: {line!r}")
    _refuse_unusable(path, cases)
    return cases


def cases_in(pattern: str) -> list[Case]:
    """All cases of the files in `tests/lang/cases` that match a pattern such as `*.pgt`."""
    return [case for path in sorted(CASES.glob(pattern)) for case in read_cases(path)]


def _refuse_unusable(path: Path, cases: list[Case]) -> None:
    names = [case.name for case in cases]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{path.name}: case names used twice: {', '.join(repeated)}")
    empty = [case.name for case in cases if not case.sections]
    if empty:
        raise ValueError(f"{path.name}: cases without sections: {', '.join(empty)}")
