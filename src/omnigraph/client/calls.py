"""A request as a value, and how its answer is decoded; nothing is sent here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.files.source_files import read_source
from omnigraph.errors import BadRequest, InternalError

Answer = TypeVar("Answer")
Decoded = TypeVar("Decoded")
Method = Literal["GET", "HEAD", "POST", "DELETE"]

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
NDJSON = "application/x-ndjson"


class Reply(Protocol):
    """What a decoder sees of an answer: that of httpx has more."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def content(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request, and what makes a value of its answer."""

    method: Method
    path: str
    """Below the address of the graph, without a slash at its front."""
    decode: Callable[[Reply], Answer]
    query: Sequence[tuple[str, str]] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Iterable[bytes] | None = field(default=None, repr=False)
    is_safe: bool = True
    """Whether it changes nothing, so that it may be sent again when no answer came."""
    source_name: str | None = None
    """The file that a query or schema was read from; errors name it."""


def path_of(*segments: str) -> str:
    """Return a path of segments, each of them encoded; a branch with slashes is one segment."""
    return "/".join(quote(segment, safe="") for segment in segments)


def query_of(**named: str | int | None) -> list[tuple[str, str]]:
    """Return the parameters that have a value; a trailing underscore is not part of a name."""
    return [(name.rstrip("_"), str(value)) for name, value in named.items() if value is not None]


def json_body(**named: Any) -> bytes:
    """Return a JSON body of the members that have a value; a trailing underscore is not part of a name."""
    members = {name.rstrip("_"): value for name, value in named.items() if value is not None}
    try:
        return msgspec.json.encode(members)
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise BadRequest(f"the request cannot be sent as JSON: {error}", remedy="give plain values") from None


def json_call(
    path: str,
    decode: Callable[[Any], Answer],
    body: bytes,
    *,
    is_safe: bool,
    headers: Mapping[str, str] | None = None,
    source_name: str | None = None,
) -> Call[Answer]:
    """Return a POST of JSON whose answer is JSON."""
    return Call(
        "POST",
        path,
        decode_json(decode),
        headers={"Content-Type": JSON, **(headers or {})},
        body=body,
        is_safe=is_safe,
        source_name=source_name,
    )


def decode_json(decode: Callable[[Any], Decoded]) -> Callable[[Reply], Decoded]:
    """Return a decoder of answers for a decoder of plain values."""

    def from_reply(reply: Reply) -> Decoded:
        try:
            return decode(msgspec.json.decode(reply.content))
        except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
            raise InternalError(
                f"the server's answer cannot be read: {error!r}",
                remedy="check that the address is that of an omnigraph server of this version",
            ) from error

    return from_reply


def read_text(given: Any) -> tuple[str, str | None]:
    """Return a query or schema, and the file it was read from, if it was a path."""
    if isinstance(given, str):
        return given, None
    source = read_source(Path(given))
    return source.text, source.name
