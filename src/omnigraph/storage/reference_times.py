"""When forks were made, by their references."""

from __future__ import annotations

import json

from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.references import reference_location


def fork_time(objects: ObjectStore, location: Location, name: str) -> int | None:
    """Return when a fork was made, in seconds since 1970; None where no reference says so."""
    text = objects.read_text_if_exists(reference_location(location, name))
    if text is None:
        return None
    try:
        return int(json.loads(text)["createAt"])
    except (ValueError, KeyError, TypeError):
        return None
