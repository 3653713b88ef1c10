"""The graph of a command that names none: that of a profile, or of the defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass

from omnigraph.cli.config import SCOPES, Config, Profile
from omnigraph.errors import BadRequest

PROFILE_SETTING = "OMNIGRAPH_PROFILE"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to work."""

    kind: str
    """`server`, `cluster` or `store`."""
    target: str
    """The name of a server or cluster, or a place."""
    default_graph: str | None
    origin: str
    """What says so, for messages."""


def active_profile(named: str | None = None) -> str | None:
    """The profile that is chosen: the one named, else that of the environment."""
    return os.environ.get(PROFILE_SETTING) or None if named is None else named


def implied_scope(config: Config, named: str | None) -> Scope | None:
    """Where to work when a command does not say it."""
    name = active_profile(named)
    if name is not None:
        return profile_scope(profile(config, name))
    defaults = config.defaults
    for kind, target in (("server", defaults.server), ("store", defaults.store)):
        if target is not None:
            return Scope(kind, target, defaults.default_graph, f"the default {kind}")
    return None


def profile(config: Config, name: str) -> Profile:
    """A profile of the config file."""
    found = config.profiles.get(name)
    if found is None:
        known = ", ".join(config.profiles) or "none"
        raise BadRequest(f"there is no profile '{name}'", remedy=f"profiles in {config.place}: {known}")
    return found


def profile_scope(found: Profile) -> Scope:
    """What a profile binds."""
    bindings = found.bindings
    if len(bindings) != 1:
        bound = " and ".join(bindings) or "none of them"
        raise BadRequest(
            f"profile '{found.name}' must bind exactly one of {', '.join(SCOPES)}, and binds {bound}"
        )
    [(kind, target)] = bindings.items()
    return Scope(kind, target, found.default_graph, f"profile '{found.name}'")
