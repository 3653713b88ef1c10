"""Patterns of texts: `like` and `ilike` of SQL, and regular expressions.

All are run by RE2, whose time is linear in the text. A pattern of SQL fits a text as a whole: `%` stands for
any characters, `_` for one, and a backslash takes its meaning from the character behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from omnigraph.lang.query import plan as p
from omnigraph.lang.query.ast import PatternOp
from omnigraph.lang.query.terms import Compare, Const, ParamRef, PatternTest, Predicate, TextTest, walk
from omnigraph.lang.types import STRING

_WILD = {"%": ".*", "_": "."}


def to_regex(op: PatternOp, pattern: str) -> str:
    """The regular expression that finds what a pattern fits."""
    if op == "matches":
        return pattern
    parts = (_WILD[text] if wild else re.escape(text) for text, wild in _split(pattern))
    return f"{'(?si)' if op == 'ilike' else '(?s)'}\\A{''.join(parts)}\\z"


def find_fault(op: PatternOp, pattern: str) -> str | None:
    """What is wrong with a pattern, or None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if op != "matches" and len(pattern) - len(pattern.rstrip("\\")) & 1:
        return "nothing follows the backslash at the end"
    try:
        pc.match_substring_regex(pa.array([""]), to_regex(op, pattern))
    except pa.ArrowInvalid as wrong:
        return str(wrong).removeprefix("Invalid regular expression: ")
    return None


def simplify_pattern(test: PatternTest) -> Predicate:
    """The comparison that a pattern amounts to, which an index may answer; else the test itself."""
    if test.op != "like" or not isinstance(test.pattern, Const):
        return test
    parts = list(_split(str(test.pattern.value)))
    open_start, open_end = parts[:1] == [("%", True)], parts[-1:] == [("%", True)]
    middle = parts[int(open_start) : len(parts) - int(open_end and len(parts) > 1)]
    if any(wild for _, wild in middle):
        return test
    fixed = Const("".join(text for text, _ in middle), STRING)
    if open_start:
        return TextTest("contains" if open_end else "ends_with", test.text, fixed)
    return TextTest("starts_with", test.text, fixed) if open_end else Compare("=", test.text, fixed)


def find_pattern_parameters(plan: p.Plan) -> dict[str, frozenset[PatternOp]]:
    """The parameters that are patterns, and what they are patterns of."""
    found: dict[str, set[PatternOp]] = {}
    for expression in p.expressions(plan):
        for part in walk(expression):
            if isinstance(part, PatternTest) and isinstance(part.pattern, ParamRef):
                found.setdefault(part.pattern.name, set()).add(part.op)
    return {name: frozenset(ops) for name, ops in found.items()}


def _split(pattern: str) -> Iterator[tuple[str, bool]]:
    """The characters of a pattern of SQL, and whether each is a wildcard."""
    rest = iter(pattern)
    for char in rest:
        if char == "\\":
            yield next(rest, char), False
        else:
            yield char, char in _WILD
