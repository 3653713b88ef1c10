"""What a route is: one row of the table in `routes`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from omnigraph.deferred_dataclass import dataclass

JSON = "application/json"
NDJSON = "application/x-ndjson; charset=utf-8"
ARROW = "application/vnd.apache.arrow.stream"
TAR = "application/x-tar"
BYTES = "application/octet-stream"
TEXT = "text/plain; version=0.0.4; charset=utf-8"

MIB = 1 << 20
JSON_LIMIT = MIB
LOAD_LIMIT = 32 * MIB

Method = Literal["GET", "HEAD", "POST", "DELETE"]


class Body(StrEnum):
    """How a request body is read."""

    NONE = "none"
    """It has none; bytes that come anyway are ignored."""
    JSON = "json"
    """Decoded into the request type; the content type must be JSON."""
    RAW = "raw"
    """Read as it is, whatever the content type says."""
    STREAM = "stream"
    """Left to the handler, which asks policy before it reads a byte."""


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter in the query or a header."""

    name: str
    help: str
    kind: Literal["string", "integer", "boolean"] = "string"
    repeats: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A method and a path, and everything that routing, OpenAPI and the docs page say about them."""

    method: Method
    path: str
    """Absolute; or without a slash at its front, below `/graphs/{graph_id}/`."""
    operation: str
    """The operation id; its handler is found by it."""
    summary: str
    policy: str = ""
    """The action and the branches that policy is asked about; empty where no token is needed."""
    request: Any = None
    """The type of the JSON body."""
    body: Body = Body.NONE
    request_media: str = JSON
    limit: int = JSON_LIMIT
    """The most bytes a body may have."""
    response: Any = None
    """The type of the JSON answer."""
    media: str = JSON
    params: tuple[Param, ...] = ()
    headers: tuple[Param, ...] = ()
    statuses: tuple[int, ...] = ()
    """Statuses beside 200 and those every route can answer with."""
    successes: tuple[int, ...] = ()
    """Statuses of answers that are neither 200 nor failures."""
    admission: bool = False
    successor: str | None = None
    """The operation that replaces a deprecated one."""
    ours: bool = False
    """Whether only this implementation has it."""
    listed: bool = True
    """Whether the OpenAPI document has it."""

    @property
    def is_public(self) -> bool:
        """Whether it needs no token."""
        return not self.policy

    @property
    def is_per_graph(self) -> bool:
        """Whether it is about one graph."""
        return not self.path.startswith("/")
