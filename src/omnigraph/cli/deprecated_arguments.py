"""Rewrites deprecated arguments to current ones, or rejects them with their successor."""

from __future__ import annotations

from omnigraph.cli.capabilities import CLAUSES
from omnigraph.cli.output import print_note
from omnigraph.errors import BadRequest

DEPRECATED = {
    ("query", "lint"): "lint",
    ("query", "check"): "lint",
    ("check",): "lint",
    ("read",): "query",
    ("change",): "mutate",
    ("ingest",): "load",
}
WITH_QUERIES = ("query", "read", "mutate", "change", "explain")


def rewrite_deprecated(arguments: list[str]) -> list[str]:
    """Return the arguments with the current name of the command."""
    at = _command_at(arguments)
    words = tuple(arguments[at : at + 2])
    _refuse_removed(words[:1], arguments)
    for length in (2, 1):
        present = DEPRECATED.get(words[:length])
        if present is not None:
            return _rename(arguments, at, length, present)
    return arguments


def _command_at(arguments: list[str]) -> int:
    """Where the command stands: after the flags before it, and their values."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in CLAUSES else 1
    return at


def _rename(arguments: list[str], at: int, length: int, present: str) -> list[str]:
    old = " ".join(arguments[at : at + length])
    print_note(f"warning: `omnigraph {old}` is deprecated; use `omnigraph {present}`")
    rest = arguments[at + length :]
    # An ingest merged into its branch, and created it if missing.
    implied = {"--mode": "merge", "--from": "main"} if old == "ingest" else {}
    added = [word for flag, value in implied.items() if not _has(flag, rest) for word in (flag, value)]
    return [*arguments[:at], present, *added, *rest]


def _has(flag: str, arguments: list[str]) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in arguments)


def _refuse_removed(command: tuple[str, ...], arguments: list[str]) -> None:
    if command and command[0] in WITH_QUERIES and _has("--alias", arguments):
        raise BadRequest(
            "--alias was removed", remedy="define aliases in the config file and use `omnigraph alias NAME`"
        )
    for flag, value in zip(arguments, [*arguments[1:], ""], strict=False):
        name, _, joined = flag.partition("=")
        if name == "--config" and (joined or value).endswith("omnigraph.yaml"):
            raise BadRequest(
                "omnigraph.yaml is not read any more",
                remedy="put profiles and aliases into ~/.omnigraph/config.yaml",
            )
