"""A process that reads a graph until it shows a round, and prints what it saw: `python -m … PLACE ROUND`."""

from __future__ import annotations

import json
import sys

import omnigraph as og
from tests.query.ledger import look_again


def main(place: str, last: int) -> None:
    with og.open(place, read_only=True) as graph:
        print("ready", flush=True)
        seen = look_again(graph)
        print(json.dumps(seen), flush=True)
        while seen[1]["last"] != last:
            seen = look_again(graph)
            print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
