"""The picture beside a log: a lane for each line of commits, as text."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine.graph.lineage import Commit, parents


def draw_lanes(commits: Sequence[Commit]) -> list[tuple[list[str], str]]:
    """Return, for each commit, the lines above it and the beginning of its own line.

    Commits come before their parents. A lane waits for a commit; several that wait for the same one meet
    in the line above it, and the second parent of a merge opens a lane in the line below.
    """
    known = {one.id for one in commits}
    lanes: list[str] = []
    found = []
    opened: list[str] = []
    for commit in commits:
        above, opened = opened, []
        mine = [at for at, name in enumerate(lanes) if name == commit.id]
        if len(mine) > 1:
            above.append(_draw_meeting(len(lanes), mine))
            lanes = [name for at, name in enumerate(lanes) if at not in mine[1:]]
        if not mine:
            mine = [len(lanes)]
            lanes.append(commit.id)
        place = mine[0]
        found.append((above, " ".join("*" if at == place else "|" for at in range(len(lanes)))))
        lanes, opened = _follow(lanes, place, [name for name in parents(commit) if name in known])
    return found


def _follow(lanes: list[str], place: int, following: list[str]) -> tuple[list[str], list[str]]:
    """Return the lanes after a commit, and the line that shows a lane being opened for a merge."""
    if not following:
        return [*lanes[:place], *lanes[place + 1 :]], []
    after = [*lanes[:place], following[0], *lanes[place + 1 :]]
    if len(following) == 1 or following[1] in after:
        return after, []
    line = " ".join("|" for _ in after) + "\\"
    return [*after, following[1]], [line]


def _draw_meeting(count: int, meeting: list[int]) -> str:
    """Return a line in which lanes end in the first of them."""
    signs = ["/" if at in meeting[1:] else "|" for at in range(count)]
    return "".join(sign if sign == "/" else f" {sign}" for sign in signs).lstrip(" ") if count else ""
