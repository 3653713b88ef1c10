"""The TextMate grammars tokenise every example of the project as the parsers do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.lang.assist.reading import read_tokens
from omnigraph.lang.source import Source
from omnigraph.lang.tokens import BAD, FLOAT, INT, STR, UPPER, VAR

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "editors" / "textmate"
FENCE = re.compile(r"```(pg|gq)\n(.*?)```", re.DOTALL)
SCOPES = {
    VAR: ("variable.parameter",),
    STR: ("string.quoted",),
    INT: ("constant.numeric",),
    FLOAT: ("constant.numeric",),
    UPPER: ("entity.name.type", "support.type"),
}


def load(language: str) -> Any:
    name = {"pg": "schema", "gq": "query"}[language]
    return json.loads((FOLDER / f"omnigraph-{name}.tmLanguage.json").read_text())


def examples(language: str) -> Iterator[tuple[str, str]]:
    for path in sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("demo/**/*"), *ROOT.glob("tests/**/*")]):
        if path.suffix == f".{language}":
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        elif path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            yield from ((path.name, found[2]) for found in FENCE.finditer(text) if found[1] == language)


def tokenise(grammar: Any, text: str) -> list[str]:
    """Return the scope of every character, by the rules of TextMate, as far as the grammars use them."""
    scopes = [""] * len(text)
    at = 0
    while at < len(text):
        found = [
            (match.start(), number, match, pattern)
            for number, pattern in enumerate(grammar["patterns"])
            if (match := re.compile(pattern.get("match") or pattern["begin"], re.M).search(text, at))
        ]
        if not found:
            break
        _, _, match, pattern = min(found, key=lambda one: one[:2])
        end = match.end()
        if "begin" in pattern:
            inner = "|".join([*(one["match"] for one in pattern.get("patterns", ())), pattern["end"]])
            for piece in re.compile(inner).finditer(text, end):
                end = piece.end()
                if re.fullmatch(pattern["end"], piece[0]):
                    break
        if "name" in pattern:
            scopes[match.start() : end] = [pattern["name"]] * (end - match.start())
        for group, capture in pattern.get("captures", {}).items():
            start, stop = match.span(int(group))
            scopes[start:stop] = [capture["name"]] * (stop - start)
        at = max(end, at + 1)
    return scopes


@pytest.mark.parametrize("language", ["pg", "gq"])
def test_every_token_of_the_examples_has_its_scope(language: str) -> None:
    grammar, seen, count = load(language), set(), 0
    for name, text in examples(language):
        scopes = tokenise(grammar, text)
        for token in read_tokens(Source(text)):
            found = set(scopes[token.start : token.end])
            if token.kind == BAD:
                continue
            assert len(found) == 1, (name, token)
            [scope] = found
            assert scope, (name, token)
            assert not scope.startswith("comment"), (name, token)
            wanted = SCOPES.get(token.kind)
            assert wanted is None or scope.startswith(wanted), (name, token, scope)
            seen.add(scope)
            count += 1
    assert count > 200
    assert f"keyword.declaration.{language}" in seen


def test_comments_strings_and_names_of_queries() -> None:
    text = r"""// query a
query one() { /* "x" */ match { $p: Person { name: "a \" // b" } } return { $p.limit } }"""
    scopes = tokenise(load("gq"), text)

    def scope_of(part: str) -> set[str]:
        start = text.index(part)
        return set(scopes[start : start + len(part)])

    assert scope_of("// query a") == {"comment.line.double-slash.gq"}
    assert scope_of("one") == {"entity.name.function.gq"}
    assert scope_of('/* "x" */') == {"comment.block.gq"}
    assert scope_of(r'"a \" // b"') == {"string.quoted.double.gq"}
    assert scope_of("match") == {"keyword.control.gq"}
    assert scope_of("limit") == {"variable.other.property.gq"}
