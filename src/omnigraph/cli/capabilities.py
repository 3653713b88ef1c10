"""What each command works on, and which of the global flags it can therefore use."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from omnigraph.cli.invocation import Invocation
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest


class Kind(StrEnum):
    """What a command works on; the values are the words of messages."""

    DATA = "data"
    SERVED = "served"
    DIRECT = "direct (storage-native)"
    CONTROL = "cluster control"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class Capability:
    """The kind of a command and the scope flags that it takes."""

    kind: Kind
    flags: frozenset[str] = frozenset()


READS = Capability(Kind.DATA, frozenset({"--server", "--graph", "--store", "--profile"}))
WRITES = Capability(Kind.DATA, READS.flags | {"--as"})
UPKEEP = Capability(Kind.DIRECT, frozenset({"--cluster", "--graph", "--store", "--profile"}))
CONTROL = Capability(Kind.CONTROL)
DECLARED = Capability(Kind.CONTROL, frozenset({"--cluster", "--graph", "--profile"}))
LOCAL = Capability(Kind.LOCAL)

CAPABILITIES: Mapping[str, Capability] = {
    **dict.fromkeys(
        ("query", "explain", "diff", "commit", "changes", "blob", "log", "show", "status", "blame"), READS
    ),
    **dict.fromkeys(("mutate", "load", "branch", "tag", "snapshot", "export", "schema"), WRITES),
    **dict.fromkeys(("revert", "cherry-pick", "reset"), WRITES),
    **dict.fromkeys(("embed", "algorithm"), Capability(Kind.DIRECT, UPKEEP.flags | {"--as"})),
    "graphs": Capability(Kind.SERVED, frozenset({"--server", "--profile"})),
    **dict.fromkeys(("optimize", "repair", "cleanup", "lint", "doctor", "recover", "sql"), UPKEEP),
    # A served graph knows its actor by the token.
    **dict.fromkeys(("mcp", "shell"), WRITES),
    "serve": Capability(Kind.DIRECT, frozenset({"--cluster", "--store", "--profile"})),
    "ui": Capability(Kind.DIRECT, frozenset({"--store", "--profile", "--as"})),
    "schema plan": Capability(Kind.DIRECT, frozenset({"--store", "--profile"})),
    "schema infer": LOCAL,
    **dict.fromkeys(("init", "copy"), Capability(Kind.DIRECT)),
    "cluster": CONTROL,
    **dict.fromkeys(("cluster apply", "cluster approve"), Capability(Kind.CONTROL, frozenset({"--as"}))),
    **dict.fromkeys(("policy", "queries"), DECLARED),
    # Its file names the graphs; a pipeline of a cluster is addressed by its name.
    "pipeline": Capability(Kind.LOCAL, frozenset({"--as", "--cluster"})),
    **dict.fromkeys(("alias", "completion", "login", "logout", "lsp", "profile", "spark", "version"), LOCAL),
}

NAMES_ITS_AUTHOR = frozenset(
    {"mutate", "load", "branch merge", "schema apply", "embed", "mcp", "shell", "ui"}
    | {"revert", "cherry-pick", "reset", "tag create", "tag delete"}
    | {"pipeline run", "pipeline retry", "algorithm", "cluster apply", "cluster approve"}
)
ECHOES_ITS_WRITE = frozenset(
    {"load", "branch create", "branch delete", "branch merge", "schema apply"}
    | {"optimize", "repair", "cleanup", "embed", "pipeline run", "pipeline retry", "algorithm"}
    | {"revert", "cherry-pick", "reset", "tag create", "tag delete"}
)
ASKS_FIRST = frozenset(
    {"load", "branch delete", "cleanup", "pipeline run", "pipeline retry", "pipeline reset-checkpoint"}
)

# In the order in which they are checked.
CLAUSES = {
    "--server": "--server addresses a graph behind a server",
    "--cluster": "--cluster addresses the graphs of a cluster",
    "--graph": "--graph chooses a graph of a server or cluster",
    "--store": "--store addresses a graph by its storage",
    "--as": "--as names the author of a commit",
    "--profile": "--profile chooses a graph by the config file",
}


def find_capability(command: str) -> Capability:
    """What a command, or the group it is in, works on; one that is not listed reads."""
    return CAPABILITIES.get(command) or CAPABILITIES.get(command.partition(" ")[0], READS)


def shown_flags(command: str) -> frozenset[str]:
    """Return the global flags that the help of a command mentions: those that affect it."""
    names = {command, command.partition(" ")[0]}
    acts = {
        "--as": names & NAMES_ITS_AUTHOR,
        "--quiet": names & ECHOES_ITS_WRITE or command == "export",
        "--yes": names & ASKS_FIRST,
    }
    scope = find_capability(command).flags & {"--server", "--cluster", "--store", "--profile"}
    if "--graph" in find_capability(command).flags:
        scope |= {"--graph"}
    return scope | {flag for flag, acting in acts.items() if acting}


def reject_unused_flags(invocation: Invocation) -> None:
    """Reject flags that a command cannot use, instead of ignoring them."""
    able = find_capability(invocation.command)
    idle = [flag for flag in CLAUSES if flag in invocation.flags and flag not in able.flags]
    if not idle:
        return
    article = f"`{invocation.command}` is a {able.kind} command"
    if invocation.command == "alias":
        # The config file defines everything about an alias.
        verb = "does" if len(idle) == 1 else "do"
        raise BadRequest(f"{article}; {', '.join(idle)} {verb} not apply.")
    raise BadRequest(f"{article}; {CLAUSES[idle[0]]} and does not apply.{_suggest_remedy(able, idle[0])}")


def _suggest_remedy(able: Capability, idle: str) -> str:
    if idle == "--as" or able.kind is Kind.LOCAL:
        return " Leave it out."
    if "--cluster" in able.flags and able.kind is Kind.CONTROL:
        return " Name the cluster with --cluster."
    if able.kind is Kind.CONTROL:
        return " Name the directory of the cluster with --config."
    if "--store" in able.flags:
        return " Name the graph by its URI or with --store."
    if able.kind is Kind.SERVED:
        return " Name a server with --server."
    return " Name the graph by its URI."
