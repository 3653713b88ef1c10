"""A process that kills children in the middle of a command: `python -m tests.cluster.killing`.

For each line `SCENE NUMBER FOLDER` it forks a child, which runs the command of a scene on the deployment in
the folder and kills itself before the storage call of that number.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.cluster.deployment import Deployment
from tests.cluster.scenes import SCENES, watching
from tests.engine.crash.killing import Disturber, serve


def run_killed(name: str, number: str, folder: str) -> str:
    """Run the command up to that call."""
    disturber = Disturber(int(number), signal.SIGKILL)
    disturber.armed = True
    SCENES[name].run(Deployment(Path(folder), watching(disturber)))
    return "done"


if __name__ == "__main__":
    serve(run_killed)
