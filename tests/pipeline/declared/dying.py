"""Children that are killed in the middle of a run: `python -m tests.pipeline.declared.dying FOLDER`.

It imports everything and uses none of it, so that a fork of it is as good as a new process. Each folder in
FOLDER is named after the point where its child is killed. The answer is a line for each: point, process and
how it ended.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from omnigraph import failpoints
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.declared.run import run
from tests.pipeline.declared.world import Given

ROWS = {"node:Person": {"email": ["a@x"]}}
UPPER = "2024-01-01"


def die(folder: Path) -> None:
    """Run the pipeline of a folder up to the point that it is named after."""
    try:
        with failpoints.arm(folder.name, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            run(read_pipeline(folder / "crm.yaml"), Given(folder, ROWS, UPPER))
    except BaseException:  # noqa: BLE001 - the status is the only way to tell
        traceback.print_exc()
    os._exit(1)


def main(at: Path) -> None:
    for folder in sorted(at.iterdir()):
        child = os.fork()
        if child == 0:
            die(folder)
        print(folder.name, child, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
