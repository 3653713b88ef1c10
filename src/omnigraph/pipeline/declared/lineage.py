"""What a run of a pipeline reads and writes, for a listener of lineage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.lineage import record_run
from omnigraph.pipeline.declared.declaration import GraphSource, JdbcSource, Pipeline, Source
from omnigraph.pipeline.declared.records import Journal, Status, Step

_TABLE = "table:"


@contextmanager
def record_lineage(pipeline: Pipeline, journal: Journal) -> Iterator[None]:
    """Send the events of a run around the block: the id is that of the run, the counts are its record's."""
    inputs = [_input_name(one) for one in pipeline.sources]
    with record_run(pipeline.name, inputs, run_id=journal.record.run_id) as run:
        yield
        uris = {one.name: one.uri for one in pipeline.into}
        for name, target in journal.record.targets.items():
            if target.status is Step.SUCCEEDED:
                run.wrote(uris[name], target.commit_id, target.nodes, target.edges)
        if journal.record.status is not Status.SUCCEEDED:
            run.failure = journal.record.describe_failure()


def _input_name(source: Source) -> str:
    """Return the place of a source, without parameters, which may hold secrets."""
    if isinstance(source, GraphSource):
        return source.graph
    if isinstance(source, JdbcSource):
        place = source.url.removeprefix("jdbc:").partition("?")[0].partition(";")[0]
        return f"{place}/{source.table or source.name}"
    if source.format.startswith(_TABLE):
        return f"spark://catalog/{source.format.removeprefix(_TABLE)}"
    return source.path or f"{source.format}://{source.name}/"
