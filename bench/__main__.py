"""`python -m bench [--short] [name…]`: run benchmarks, print a table, keep the raw numbers."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path

from bench.measure import Result

BENCHMARKS = {
    "branches": "bench.branches",
    "bulk": "bench.bulk",
    "compile": "bench.compile",
    "diffs": "bench.diffs",
    "forks": "bench.forks",
    "loads": "bench.loads",
    "merges": "bench.merges",
    "publish": "bench.publish",
    "reads": "bench.reads",
    "threads": "bench.threads",
    "writes": "bench.writes",
}
"""Name to module; a module has `run(*, short)`, and `table(result)` where one table does not fit."""

RESULTS = Path(__file__).parent / "results"


def main(arguments: list[str] | None = None) -> int:
    """Run the named benchmarks, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run the benchmarks.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--short", action="store_true", help="a few rounds only: shows that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the raw numbers go")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark called {', '.join(unknown)}; there are: {', '.join(BENCHMARKS)}")
    for name in options.names or BENCHMARKS:
        module = importlib.import_module(BENCHMARKS[name])
        result = module.run(short=options.short)
        print(getattr(module, "table", table)(result))
        print(f"raw numbers: {keep(result, options.results)}\n")
    return 0


def table(result: Result) -> str:
    """Medians in milliseconds, and how they compare with each yardstick."""
    head = ["task", "median ms", *(f"x {name}" for name in result.yardsticks), "target ms"]
    rows = [
        [
            timing.name,
            f"{timing.median * 1000:.4f}",
            *(f"{result.ratio(timing, yardstick):.2f}" for yardstick in result.yardsticks),
            f"< {target * 1000:g}" if (target := result.targets.get(timing.name)) else "",
        ]
        for timing in result.timings
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    facts = ", ".join(f"{name} {value}" for name, value in result.facts.items())
    lines = [f"{result.name} ({facts})"]
    for row in (head, *rows):
        first, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        numbers = (cell.strip().rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        lines.append("  ".join([first, *numbers]).rstrip())
    return "\n".join([*lines, *result.notes])


def keep(result: Result, folder: Path) -> Path:
    """Write everything measured as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    path.write_text(json.dumps(result.to_json(), indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    sys.exit(main())
