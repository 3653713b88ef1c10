"""Many violations of a load as a short text: totals first, equal reasons together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

EXAMPLES = 3
"""So many violations with one reason are listed."""

_PLACE = re.compile(r"^(invalid (?:strict JSON|CSV) at )?line [0-9]+: ")
_FOUND = re.compile(r", got .*$", re.DOTALL)
_VALUE = re.compile(r"\b(value|id|src|dst|nodes?) (?:'[^']*'|[-+]?[0-9][0-9.eE+-]*|NaN|-?Infinity)")


def summarize_violations(
    violations: Sequence[Any], total: int, counts: Mapping[str, int], remedy: str | None
) -> list[str]:
    """The lines of a report: how many there are, what to do, then each reason with a few places."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    head = f"{total} violations: {kinds}" if len(counts) > 1 else f"{total} violations"
    return [head, *([f"  help: {remedy}"] if remedy else []), *group_violations(violations, total)]


def group_violations(violations: Sequence[Any], total: int) -> Iterator[str]:
    """The reported violations, equal reasons together; the first place decides the order."""
    groups: dict[str, list[Any]] = {}
    for one in violations:
        groups.setdefault(_kind(one.reason), []).append(one)
    for kind, members in groups.items():
        if len(members) <= EXAMPLES:
            yield from (f"  {one}" for one in members)
            continue
        yield f"  {len(members)} times: {kind}"
        yield from (f"    {one}" for one in members[:EXAMPLES])
        yield f"    and {len(members) - EXAMPLES} more"
    if total > len(violations):
        yield f"  and {total - len(violations)} more, which are not listed"


def _kind(reason: str) -> str:
    """A reason without the place and the value of its row."""
    return _VALUE.sub(r"\1 …", _FOUND.sub("", _PLACE.sub(r"\1", reason)))
