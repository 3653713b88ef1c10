"""Two actors of one server: bo proposes a change, and ann merges it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import omnigraph as og
from omnigraph.errors import PolicyDenied

url, tokens = sys.argv[1], json.loads(Path("tokens.json").read_text())
change = Path("social.gq"), {"handle": "mira-1", "city": "Rome"}

with og.connect(url, token=tokens["bo"]) as graph:
    try:
        graph.mutate(*change, name="move")
    except PolicyDenied as denied:
        print("denied:", denied)
    graph.branches.create("proposal")
    print(graph.mutate(*change, name="move", branch="proposal"))

with og.connect(url, token=tokens["ann"]) as graph:
    print(graph.merge("proposal", delete_branch=True))
    print("newest commit of main: by", graph.commits.list(limit=1)[0].actor)
