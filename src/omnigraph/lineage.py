"""Lineage of loads and pipeline runs as OpenLineage events, if a listener is configured.

A run begins with START and ends with COMPLETE or FAIL. Nothing that a listener does fails a run: it is
logged as a warning.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from omnigraph.deferred_dataclass import dataclass

log = logging.getLogger("omnigraph.lineage")

NAMESPACE_SETTING = "OPENLINEAGE_NAMESPACE"
_DEFAULT_NAMESPACE = "omnigraph"
_PRODUCER = "omnigraph"
_VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
_FILE = "openlineage.yml"

_inside: ContextVar[bool] = ContextVar("inside a recorded run", default=False)


@dataclass(frozen=True, slots=True)
class Output:
    """Rows of a type that a run wrote into a graph."""

    graph: str
    table: str
    """As in `node:Person`."""
    rows: int
    commit: str | None


class Run:
    """A run that is being recorded; its caller adds what it learns."""

    def __init__(self, inputs: Iterable[str]) -> None:
        self.inputs = list(inputs)
        self.outputs: list[Output] = []
        self.failure: str | None = None

    def wrote(
        self, graph: str, commit: str | None, nodes: Mapping[str, int], edges: Mapping[str, int]
    ) -> None:
        """Add the rows that a commit wrote, by type."""
        for kind, counts in (("node", nodes), ("edge", edges)):
            self.outputs += [Output(graph, f"{kind}:{name}", rows, commit) for name, rows in counts.items()]


@contextmanager
def record_run(job: str, inputs: Iterable[str] = (), *, run_id: str | None = None) -> Iterator[Run]:
    """Send the events of a run around the block; a run inside of another one is part of that."""
    run = Run(inputs)
    if _inside.get() or not is_configured():
        yield run
        return
    identity = _identity(run_id)
    token = _inside.set(True)
    sender = _open_sender()
    sender.send(_Event("START", job, identity, tuple(run.inputs)))
    try:
        yield run
    except BaseException as failure:
        run.failure = str(failure) or type(failure).__name__
        raise
    finally:
        _inside.reset(token)
        ended = "COMPLETE" if run.failure is None else "FAIL"
        outputs = tuple(run.outputs)
        sender.send(_Event(ended, job, identity, tuple(run.inputs), outputs, run.failure))
        sender.close()


def is_configured() -> bool:
    """Whether a listener is named by a variable, or by a file where the OpenLineage client looks for one."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if any(name.startswith(_VARIABLES) and value for name, value in os.environ.items()):
        return True
    return any((folder / _FILE).is_file() for folder in (Path.cwd(), Path.home() / ".openlineage"))


def describe_inputs(data: object) -> list[str]:
    """Return the names of the inputs of a load; rows in memory have none."""
    if isinstance(data, str | os.PathLike):
        return [os.fspath(data)]
    # The first of many rows tells that all of them are rows.
    if isinstance(data, Sequence) and data and not isinstance(data[0], Mapping):
        names = (getattr(one, "name", one) for one in data)
        return [os.fspath(one) for one in names if isinstance(one, str | os.PathLike)]
    return []


@dataclass(frozen=True, slots=True)
class _Event:
    state: str
    job: str
    run_id: str
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...] = ()
    failure: str | None = None
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat())


class _Sender(Protocol):
    def send(self, event: _Event) -> None: ...

    def close(self) -> None: ...


class _NoSender:
    def send(self, event: _Event) -> None:
        """Send nothing: the reason was logged."""

    def close(self) -> None:
        """Nothing is open."""


class _Listener:
    """The listener of the OpenLineage client's configuration."""

    def __init__(self) -> None:
        from openlineage.client import OpenLineageClient

        self._client: Any = OpenLineageClient()

    def send(self, event: _Event) -> None:
        try:
            self._client.emit(_encode(event))
        except Exception as failure:  # noqa: BLE001 - whatever a listener does, the run goes on
            log.warning("the lineage event %s of %s was not sent: %s", event.state, event.job, failure)

    def close(self) -> None:
        try:
            self._client.close()
        except Exception as failure:  # noqa: BLE001 - as above
            log.warning("the lineage listener was not closed: %s", failure)


def _open_sender() -> _Sender:
    if find_spec("openlineage") is None:
        log.warning(
            "lineage is configured, but the package 'openlineage-python' is not installed: "
            "pip install 'omnigraph[openlineage]'"
        )
        return _NoSender()
    try:
        return _Listener()
    except Exception as failure:  # noqa: BLE001 - a wrong configuration fails no run
        log.warning("the lineage listener could not be opened: %s", failure)
        return _NoSender()


def _encode(event: _Event) -> Any:
    from openlineage.client import event_v2 as events
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        error_message_run,
        output_statistics_output_dataset,
    )

    facets = {}
    if event.failure is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(event.failure, "python")
    outputs = []
    for one in event.outputs:
        namespace, name = _dataset(one.graph)
        version = dataset_version_dataset.DatasetVersionDatasetFacet(one.commit) if one.commit else None
        counted = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=one.rows)
        outputs.append(
            events.OutputDataset(
                namespace,
                f"{name}/{one.table}",
                facets={} if version is None else {"version": version},
                outputFacets={"outputStatistics": counted},
            )
        )
    namespace = os.environ.get(NAMESPACE_SETTING, "").strip() or _DEFAULT_NAMESPACE
    return events.RunEvent(
        eventTime=event.time,
        producer=_PRODUCER,
        eventType=events.RunState[event.state],
        run=events.Run(event.run_id, facets=facets),
        job=events.Job(namespace, event.job),
        inputs=[events.InputDataset(*_dataset(name)) for name in event.inputs],
        outputs=outputs,
    )


def _dataset(place: str) -> tuple[str, str]:
    """Return namespace and name of a place, by the naming rules of OpenLineage."""
    parts = urlsplit(place)
    if parts.scheme and parts.netloc:
        return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/") or "/"
    return "file", str(Path(place).absolute())


def _identity(run_id: str | None) -> str:
    """Return the UUID of a run: its own id in that form, or a new one; both order by time."""
    from ulid import ULID

    return str((ULID() if run_id is None else ULID.from_str(run_id)).to_uuid())
