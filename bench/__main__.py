"""`python -m bench [--quick | --short] [name…]` runs workloads; `python -m bench report` writes the page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.board import FAILED, apart, last_complete, measure_board, place_of
from bench.machine import ROOT
from bench.measure import QUICK, SHORT, WHOLE
from bench.plots import draw_board
from bench.report import page, tables
from bench.workloads import BOARD, Workload, find_workloads, record, words

RESULTS = Path(__file__).parent / "results"
REPORT = "report"


def main(arguments: list[str] | None = None) -> int:
    """Run the named workloads, or all of the board; or write the page of the last run."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == [REPORT]:
        return _report(given[1:])
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=f"Run workloads. `python -m bench {REPORT}` writes the page."
    )
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(words())}")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_true", help="less data and fewer rounds: ten minutes for all")
    sizes.add_argument("--short", action="store_true", help="next to nothing: shows that it runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the numbers go")
    parser.add_argument("--here", action="store_true", help="run in this process, for a debugger or profiler")
    options = parser.parse_args(given)
    unknown = [name for name in options.names if not find_workloads(name)]
    if unknown:
        parser.error(f"no workload called {', '.join(unknown)}; there are: {', '.join(words())}")
    wanted = dict.fromkeys(one for name in options.names for one in find_workloads(name)) or BOARD
    size = SHORT if options.short else QUICK if options.quick else WHOLE
    return _run(list(wanted), size, options.results, here=options.here)


def _run(wanted: Sequence[Workload], size: str, results: Path, *, here: bool) -> int:
    to = place_of(results)
    board = None
    for workload, board in zip(
        wanted, measure_board(wanted, size, record if here else apart, to), strict=True
    ):
        print(
            f"{workload.name}: {workload.title}\n\n{tables(workload.name, board['workloads'][workload.name])}"
        )
    assert board is not None
    folder = to.with_suffix("")
    pictures = {} if size == SHORT else draw_board(board, folder)
    written = to.with_suffix(".md")
    links = {name: f"{folder.name}/{path.name}" for name, path in pictures.items()}
    written.write_text(page(board, links), encoding="utf-8")
    print(f"numbers: {to}\ntables: {written}\npictures: {folder if pictures else 'none'}")
    return 1 if any(FAILED in one for one in board["workloads"].values()) else 0


def _report(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {REPORT}", description="Write docs/benchmarks.md from a run."
    )
    parser.add_argument(
        "run", nargs="?", type=Path, help="a JSON file; the last run of all workloads if not given"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the runs are")
    parser.add_argument("--to", type=Path, default=ROOT / "docs", help="the folder of the page")
    options = parser.parse_args(given)
    if options.run is not None:
        board = json.loads(options.run.read_text(encoding="utf-8"))
    else:
        board = last_complete(options.results)
    pictures = draw_board(board, options.to / "benchmarks") if board else {}
    links = {name: f"benchmarks/{path.name}" for name, path in pictures.items()}
    written = options.to / "benchmarks.md"
    written.write_text(page(board, links), encoding="utf-8")
    print(f"written: {written}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
