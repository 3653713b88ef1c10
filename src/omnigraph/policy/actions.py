"""What a policy can allow, and what each action is about."""

from __future__ import annotations

from enum import StrEnum

from omnigraph.errors import InvalidValue
from omnigraph.lang.values import shorten_legibly


class Action(StrEnum):
    """Something that an actor may be allowed to do."""

    READ = "read"
    EXPORT = "export"
    CHANGE = "change"
    SCHEMA_APPLY = "schema_apply"
    BRANCH_CREATE = "branch_create"
    BRANCH_DELETE = "branch_delete"
    BRANCH_MERGE = "branch_merge"
    INVOKE_QUERY = "invoke_query"
    ADMIN = "admin"
    GRAPH_LIST = "graph_list"

    @property
    def kind(self) -> Kind:
        """The kind of bundle that can allow it."""
        return Kind.SERVER if self in SERVER_ACTIONS else Kind.GRAPH


class Kind(StrEnum):
    """What a bundle is about: one graph, or the server itself."""

    GRAPH = "graph"
    SERVER = "server"


class Scope(StrEnum):
    """The branches that a rule is about."""

    ANY = "any"
    PROTECTED = "protected"
    UNPROTECTED = "unprotected"


BRANCH_ACTIONS = frozenset({Action.READ, Action.EXPORT, Action.CHANGE})
"""Actions that a rule may limit with `branch_scope`."""
TARGET_ACTIONS = frozenset(
    {Action.SCHEMA_APPLY, Action.BRANCH_CREATE, Action.BRANCH_DELETE, Action.BRANCH_MERGE}
)
"""Actions that a rule may limit with `target_branch_scope`."""
SERVER_ACTIONS = frozenset({Action.GRAPH_LIST})


def parse_kind(text: str | None) -> Kind | None:
    """Return the kind of a name."""
    if text is not None and text not in list(Kind):
        raise InvalidValue(f"'{shorten_legibly(text)}' is not a kind of policy", remedy="graph or server")
    return None if text is None else Kind(text)


def parse_action(text: str) -> Action:
    """Return the action of a name, written `schema_apply` or `schema-apply`."""
    if isinstance(text, Action):
        return text
    name = text.strip().replace("-", "_")
    if name not in list(Action):
        raise InvalidValue(
            f"'{shorten_legibly(text)}' is not an action", remedy=f"it may be: {', '.join(Action)}"
        )
    return Action(name)
