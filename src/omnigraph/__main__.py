"""`python -m omnigraph` is the `omnigraph` command."""

from __future__ import annotations

import sys

from omnigraph.cli.start import command

if __name__ == "__main__":
    sys.exit(command())
