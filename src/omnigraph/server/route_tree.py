"""Which route a path and a method mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import unquote_to_bytes

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest, MethodNotAllowed, NotFound
from omnigraph.server.route import Route

GRAPHS = "graphs"
GRAPH_ID = "graph_id"
WITHOUT_ALIAS = frozenset({"graphHealth", "graphMcp"})
"""Operations about a graph whose path means something else at the root."""
ABSENT = frozenset({("POST", "graphs")})
"""Graphs are created by their owners, never over HTTP: there is no such route, whatever else its path has."""


@dataclass(frozen=True, slots=True)
class Match:
    """A route, and the parts of the path that it has names for."""

    route: Route
    path: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Pattern:
    route: Route
    segments: tuple[str, ...]

    def match(self, found: Sequence[str]) -> dict[str, str] | None:
        names = {}
        for wanted, segment in zip(self.segments, found, strict=True):
            if wanted.startswith("{"):
                names[wanted[1:-1]] = segment
            elif wanted != segment:
                return None
        return names


class RouteTree:
    """All routes; those about a graph also without `/graphs/{graph_id}`, if one graph is the only one."""

    def __init__(self, routes: Iterable[Route], flat: str | None) -> None:
        self._flat = flat
        self._patterns: dict[tuple[int, str], list[_Pattern]] = {}
        for route in routes:
            for segments in _paths(route, has_alias=flat is not None):
                key = (len(segments), _distinguishing(segments))
                self._patterns.setdefault(key, []).append(_Pattern(route, segments))
        for found in self._patterns.values():
            # A fixed word goes before a name: `branches/merge` is a route, and may be a branch.
            found.sort(key=lambda pattern: sum(one.startswith("{") for one in pattern.segments))

    def find(self, method: str, raw_path: bytes) -> Match:
        """Return the route; raises `NotFound` for an unknown path and `MethodNotAllowed` for a known one."""
        segments = _split(raw_path)
        offered = []
        for pattern, names in self._matches(segments):
            if pattern.route.method == method:
                if pattern.route.is_per_graph and GRAPH_ID not in names and self._flat is not None:
                    names[GRAPH_ID] = self._flat
                return Match(pattern.route, names)
            offered.append(pattern.route.method)
        shown = "/" + "/".join(segments)
        if offered and (method, "/".join(segments)) not in ABSENT:
            raise MethodNotAllowed(method, shown, offered)
        raise NotFound(f"there is no route {shown}", remedy="see /openapi.json for the routes")

    def _matches(self, segments: Sequence[str]) -> Iterator[tuple[_Pattern, dict[str, str]]]:
        for pattern in self._patterns.get((len(segments), _distinguishing(segments)), ()):
            names = pattern.match(segments)
            if names is not None:
                yield pattern, names


def _paths(route: Route, *, has_alias: bool) -> Iterator[tuple[str, ...]]:
    segments = tuple(route.path.removeprefix("/").split("/"))
    if not route.is_per_graph:
        yield segments
        return
    yield (GRAPHS, f"{{{GRAPH_ID}}}", *segments)
    if has_alias and route.operation not in WITHOUT_ALIAS:
        yield segments


def _distinguishing(segments: Sequence[str]) -> str:
    """Return the first word of a path that tells routes apart."""
    if len(segments) > 2 and segments[0] == GRAPHS:
        return f"{GRAPHS}/{segments[2]}"
    return segments[0]


def _split(raw_path: bytes) -> list[str]:
    """Return the segments of a path, decoded one by one: an encoded slash is a part of a name."""
    path = raw_path.partition(b"?")[0]
    try:
        return [unquote_to_bytes(part).decode() for part in path.removeprefix(b"/").split(b"/")]
    except UnicodeDecodeError:
        raise BadRequest("the path is not UTF-8") from None
