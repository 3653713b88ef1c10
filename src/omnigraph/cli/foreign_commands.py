"""Words that users of git, DuckDB and other tools type, and what they are here."""

from __future__ import annotations

import re

_WRITES = "every load, mutation and merge is a commit: give its message there with -m"
_BRANCH = "nothing is checked out: give --branch NAME to each command, or work in `omnigraph shell`"
_SHARE = "a graph is shared by its folder or bucket or by `omnigraph serve`; `omnigraph copy` copies it"
_LOAD = "files are loaded with `omnigraph load GRAPH --data FILE --mode merge`"
_CHANGE = "rows are changed by a mutation, with `omnigraph mutate`"

COMMANDS = {
    "add": _WRITES,
    "checkout": _BRANCH,
    "switch": _BRANCH,
    "push": _SHARE,
    "pull": _SHARE,
    "fetch": _SHARE,
    "clone": _SHARE,
    "import": _LOAD,
    "insert": _CHANGE,
    "update": _CHANGE,
    "delete": _CHANGE,
    "merge": "branches are merged with `omnigraph branch merge NAME`",
    "rebase": "branches are merged with `omnigraph branch merge NAME`",
    "create": "a graph is created with `omnigraph init --schema FILE GRAPH`",
    "describe": "`omnigraph schema show` prints the schema, `omnigraph status` the number of rows",
    "select": "rows are read with `omnigraph query --query-string TEXT`",
    "match": "rows are read with `omnigraph query --query-string TEXT`",
}
"""By the word that is no command."""

_COMMAND = re.compile(r"No such command '([a-z-]+)'")
_MODE = re.compile(r"'--mode': .*'(upsert|update|replace|insert|truncate|write)' is not")
_MODES = {
    "upsert": "merge",
    "update": "patch",
    "replace": "overwrite",
    "truncate": "overwrite",
    "write": "overwrite",
    "insert": "append",
}


def explain_misuse(message: str, path: str) -> str | None:
    """What to do instead, for a message about wrong usage of the command at `path`."""
    command = _COMMAND.search(message)
    if command is not None and path == "omnigraph":
        return COMMANDS.get(command.group(1))
    if path == "omnigraph commit" and "-m" in message:
        return _WRITES
    mode = _MODE.search(message)
    if mode is not None:
        return f"did you mean {_MODES[mode.group(1)]}?"
    if "'--mode'" in message and "Missing" in message:
        return (
            "append adds new rows, merge also replaces those that exist, patch changes some of their "
            "properties, overwrite replaces all of a type"
        )
    return None
