"""Bundles that the tests of policies share."""

from __future__ import annotations

MEMBER = "act-ana"
OTHER = "act-bob"
STRANGER = "act-zed"
PROTECTED = "main"
UNPROTECTED = "draft"

GROUPS = f"groups: {{team: [{MEMBER}], others: [{OTHER}]}}\nprotected_branches: [{PROTECTED}]\n"


def bundle(*rules: str) -> str:
    """The text of a bundle whose rules are written as flow mappings."""
    return "version: 1\n" + GROUPS + "rules:\n" + "".join(f"  - {rule}\n" for rule in rules)


def rule(actions: str, *, id: str = "r", group: str = "team", scope: str = "") -> str:
    """One rule; `scope` is a further member, such as `branch_scope: any`."""
    more = f", {scope}" if scope else ""
    return f"{{id: {id}, allow: {{actors: {{group: {group}}}, actions: [{actions}]{more}}}}}"
