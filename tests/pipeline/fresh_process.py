"""Runs a piece of Python that may open a session of its own, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

SECONDS = 600


def run(code: str, *arguments: str) -> Any:
    """What the code puts into `answer`; anything it prints is a failure, because sessions are silent."""
    program = textwrap.dedent(code) + "\nimport json\nprint('answer:' + json.dumps(answer))\n"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.startswith("answer:"), done.stdout
    return json.loads(done.stdout.removeprefix("answer:"))
