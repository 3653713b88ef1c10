"""Guessed types as the text of a schema, with comments on what was guessed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from omnigraph.engine.inference.samples import END_COLUMNS, Sample
from omnigraph.engine.inference.type_guesses import PropertyGuess, TypeGuess, guess_types
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source

_HEAD = (
    "// Inferred from data; check what is marked as guessed.\n"
    "// Properties may be null unless they are part of a key: remove `?` where a value is required.\n"
)


def infer_schema_text(samples: Iterable[Sample], keys: Mapping[str, Sequence[str]]) -> str:
    """The text of a schema that several tables fit."""
    return render_schema(guess_types(samples, keys))


def render_schema(guesses: Sequence[TypeGuess]) -> str:
    """The text of a schema with these types, nodes first."""
    ordered = sorted(guesses, key=lambda one: one.end_columns is not None)
    text = "\n".join([_HEAD, *("\n".join([*_type_lines(one), ""]) for one in ordered)])
    compile_schema(Source(text))  # what was inferred is a schema
    return text


def _type_lines(guess: TypeGuess) -> Iterator[str]:
    yield f"// {_comment(guess.sample.origin)}"
    if not guess.key and guess.key_note is not None:
        yield f"// {guess.key_note}"
    if guess.ends_note is not None:
        yield f"// {_comment(guess.ends_note)}"
    if guess.end_columns is not None and guess.end_columns not in END_COLUMNS:
        source, target = map(json.dumps, guess.end_columns)
        yield f"// load it with `from: {_comment(source)}, to: {_comment(target)}` in a mapping"
    header = f"node {guess.name}" if guess.ends is None else f"edge {guess.name}: {' -> '.join(guess.ends)}"
    body = [line for one in guess.properties for line in _property_lines(one, guess)]
    if len(guess.key) > 1:
        body.append(f"  @key({', '.join(guess.key)})")
    if not body and guess.ends is not None:
        yield header
        return
    yield f"{header} {{"
    yield from body
    yield "}"


def _property_lines(one: PropertyGuess, owner: TypeGuess) -> Iterator[str]:
    if one.guess.type is None:
        yield f"  // column {_comment(json.dumps(one.column))} is left out: {one.guess.note}"
        return
    is_key = one.name in owner.key
    declared = f"  {one.name}: {one.guess.type.with_nullable(not is_key)}"
    if owner.key == (one.name,):
        declared += " @key"
    notes = [owner.key_note if owner.key == (one.name,) else None, one.guess.note]
    if one.name != one.column:
        notes.append(f"column {json.dumps(one.column)}")
    text = "; ".join(note for note in notes if note)
    yield f"{declared}  // {_comment(text)}" if text else declared


def _comment(text: str) -> str:
    """A text that stays on its line, whatever names are in it."""
    return "".join(char if char.isprintable() else " " for char in text)
