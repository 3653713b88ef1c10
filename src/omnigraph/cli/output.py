"""What the command line prints: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, runtime_checkable

from omnigraph.errors import CompileError, OmnigraphError, SchemaDataViolation, StorageFailure
from omnigraph.lang.values import escape_unprintable

if TYPE_CHECKING:
    from omnigraph.engine.upkeep.declared_indexes import PendingIndexes


def print_text(text: str) -> None:
    """A result for a person to read."""
    _write_line(sys.stdout, text)


def print_json(value: Any) -> None:
    """A result for a script to read."""
    _write_line(sys.stdout, _encode_json(value, sys.stdout))


def print_result(value: Any, text: str, *, as_json: bool) -> None:
    """One result in the form the user asked for."""
    if as_json:
        print_json(value)
    else:
        print_text(text)


def print_note(text: str) -> None:
    """A remark that must not end up in the data a script reads."""
    _write_line(sys.stderr, text)


def print_pending(pending: PendingIndexes) -> None:
    """Note the indexes that a write left unbuilt, if there are any."""
    if pending:
        from omnigraph.engine.upkeep.declared_indexes import describe_pending  # the engine is not for all

        remedy = "later writes or `omnigraph optimize` build them; reads are right without"
        print_note("\n".join([*describe_pending(pending), remedy]))


def print_error(error: OmnigraphError, *, as_json: bool) -> None:
    """A failure, with what to do about it; for a script on one line, as it may follow others."""
    text = _encode_json(error.to_json(), sys.stderr, indent=None) if as_json else describe(error)
    _write_line(sys.stderr, text)


@runtime_checkable
class Summarized(Protocol):
    """An error about many rows, which puts equal reasons together."""

    def summary(self) -> str: ...


def describe(error: OmnigraphError) -> str:
    """A failure in words; one in a text shows the text with the wrong part underlined."""
    if isinstance(error, CompileError):
        return error.render()
    violations = getattr(error, "violations", ())
    if isinstance(error, SchemaDataViolation):
        lines = [f"error[{error.code}]: the stored data does not fit the schema", *_breach_lines(error)]
    elif len(violations) > 1 and isinstance(error, Summarized):
        return _printable([f"error[{error.code}]: {error.summary()}"])
    elif len(violations) > 1:
        lines = [f"error[{error.code}]: {len(violations)} violations", *(f"  {one}" for one in violations)]
    else:
        lines = [f"error[{error.code}]: {next(iter(violations), error.message)}"]
    if error.remedy:
        lines.append(f"  help: {error.remedy}")
    return _printable(lines)


def _printable(lines: Sequence[str]) -> str:
    # Names and values in it are the user's; what they hold must not steer a terminal.
    return "\n".join(escape_unprintable(line) for text in lines for line in text.split("\n"))


def _breach_lines(error: SchemaDataViolation) -> Iterator[str]:
    """Each constraint that stored rows break, and some of the rows."""
    for breach in error.breaches:
        yield f"  {breach.type_kind} {breach.type_name} {breach.constraint}: {breach.count} violations"
        yield from (f"    {example.reason}" for example in breach.examples)


def prepare_streams() -> None:
    """Make both streams take any text: a closed one goes nowhere, a narrow encoding gets escapes."""
    if sys.stdout is None:
        sys.stdout = _open_null()
    if sys.stderr is None:
        sys.stderr = _open_null()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _open_null() -> TextIOWrapper:
    return Path(os.devnull).open("w", encoding="utf-8")


def _encode_json(value: Any, stream: IO[str], indent: int | None = 2) -> str:
    # A Python escape of a character above the basic plane is not a JSON escape, so leave none to the stream.
    unicode_stream = (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"
    return json.dumps(value, indent=indent, ensure_ascii=not unicode_stream)


def _write_line(stream: IO[str], text: str) -> None:
    try:
        stream.write(text if text.endswith("\n") else text + "\n")
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise StorageFailure(f"cannot write the output: {failure.strerror}", kind="output") from failure
