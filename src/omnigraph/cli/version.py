"""`omnigraph version`."""

from __future__ import annotations

from omnigraph import __version__
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.engine.graph.format_stamp import CURRENT

app = new_app()


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version of omnigraph and of the form in which it stores graphs."""
    report = {"version": __version__, "internal_schema_version": CURRENT}
    print_result(report, f"omnigraph {__version__}\ninternal-schema {CURRENT}", as_json=as_json)
