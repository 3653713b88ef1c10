"""The sources of a pipeline file, and the providers they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.spark_source import TABLE, is_format
from omnigraph.errors import (
    PipelineFileMissing,
    PipelineSourceAmbiguous,
    PipelineSourceKindUnsupported,
    SourceSecretInline,
)
from omnigraph.lang.values import shorten_legibly
from omnigraph.pipeline.declared.declaration import FileSource, GraphSource, JdbcSource, Source, Watermark
from omnigraph.pipeline.declared.members import Node
from omnigraph.pipeline.declared.secrets import REFERENCE, SECRET_MEMBERS, is_reference
from omnigraph.pipeline.declared.surroundings import Surroundings

FILES, JDBC, GRAPH = "files", "jdbc", "graph"
KINDS = (FILES, JDBC, GRAPH)
FORMATS = ("parquet", "json", "csv", "orc", "text")
"""Those that are files; Spark may have others, which may be something else."""
WATERMARK_TYPES = ("timestamp", "date", "bigint", "int", "string")

_PREFIX = "provider.source."
_FILE_MEMBERS = {"format", "path", "options", "watermark"}
_JDBC_MEMBERS = {"table", "query", "options", "watermark"}
_JDBC_OWN = {"url", "user", "password", "token", "driver"}
_PROFILE = ("kind", "root", "url", "user", "password", "token", "driver", "options")
_GRAPH_MEMBERS = {"graph", "types", "branch", "commit"}


@dataclass(frozen=True, slots=True)
class Provider:
    """What several sources have in common."""

    kind: str
    members: Mapping[str, Node]

    def read_text(self, name: str) -> str | None:
        """A member, if it is there."""
        return self.members[name].text() if name in self.members else None

    def profile(self) -> dict[str, Any]:
        """What was declared, with `${NAME}` as it is; the order of members is always the same."""
        return {name: self.members[name].value.plain() for name in _PROFILE if name in self.members}


def read_provider(node: Node) -> Provider:
    """One provider of sources."""
    found = node.object()
    kind = _read_kind(node, found.get("kind"))
    if kind == FILES:
        members = node.members({"kind", "root", "options"}, ["root"])
    elif kind == JDBC:
        members = node.members({"kind", "options", *_JDBC_OWN}, ["url"])
    else:
        node.refuse("is not what a provider can be", "name the graph in the source itself")
    _refuse_secrets(members)
    return Provider(kind, members)


def read_source(
    name: str, node: Node, providers: Mapping[str, Provider], surroundings: Surroundings
) -> Source:
    """One source, with what its provider says taken in."""
    if isinstance(node.value.value, str):
        node.refuse(
            f"is a single word, '{shorten_legibly(node.value.value)}'",
            "write an object: `{provider: NAME, ...}`, `{format: csv, path: ...}` or `{graph: ...}`",
            PipelineSourceAmbiguous,
        )
    members = node.object()
    provider = _find_provider(members["provider"], providers) if "provider" in members else None
    kind = provider.kind if provider is not None else _declared_kind(node, members)
    if kind == GRAPH:
        return _read_graph(name, node, surroundings)
    return (
        _read_files(name, node, provider, surroundings) if kind == FILES else _read_jdbc(name, node, provider)
    )


def declared_source(node: Node, source: Source) -> dict[str, Any]:
    """Return a source as it was written, with the names of its provider and graph alone."""
    found: dict[str, Any] = node.value.plain()
    if "provider" in found:
        found["provider"] = provider_name(found["provider"])
    if isinstance(source, GraphSource):
        found["graph"] = source.name_of_graph
    return found


def provider_name(text: str) -> str:
    """Return the name of a provider, which may be written as an address."""
    return text.removeprefix(_PREFIX)


def _find_provider(node: Node, providers: Mapping[str, Provider]) -> Provider:
    name = provider_name(node.text())
    if name not in providers:
        known = ", ".join(sorted(providers)) or "none"
        node.refuse(f"names a provider '{shorten_legibly(name)}' that is not there", f"there are: {known}")
    return providers[name]


def _declared_kind(node: Node, members: Mapping[str, Node]) -> str:
    if "kind" in members:
        return _read_kind(node, members["kind"])
    if GRAPH in members:
        return GRAPH
    if "url" in members:
        return JDBC
    if "path" in members or "format" in members:
        return FILES
    node.refuse("does not tell what it is", "give a `provider`, a `path`, a `url` or a `graph`")


def _read_kind(node: Node, declared: Node | None) -> str:
    if declared is None:
        node.refuse("needs `kind`", f"it may be: {', '.join(KINDS)}")
    kind = declared.text()
    if kind not in KINDS:
        declared.refuse(
            f"names a kind '{shorten_legibly(kind)}' that cannot be read",
            f"it may be: {', '.join(KINDS)}",
            PipelineSourceKindUnsupported,
        )
    return kind


def _read_files(name: str, node: Node, provider: Provider | None, surroundings: Surroundings) -> FileSource:
    members = node.members({"kind", "provider", *_FILE_MEMBERS}, ["format"])
    form = members["format"].text()
    if not is_format(form):
        members["format"].refuse(
            f"names a format '{shorten_legibly(form)}' that cannot be read",
            f"it may be {', '.join(FORMATS)}, another one that Spark has, or `{TABLE}NAME`",
        )
    if form in FORMATS and "path" not in members:
        node.refuse("needs `path`")
    if form.startswith(TABLE) and ("path" in members or provider is not None):
        node.refuse("is a table of Spark's catalog, and has no path")
    return FileSource(
        name,
        form,
        _locate_files(members, provider, surroundings),
        _read_options(members, provider),
        _read_watermark(members.get("watermark")),
        node.place,
    )


def _locate_files(members: Mapping[str, Node], provider: Provider | None, surroundings: Surroundings) -> str:
    """Where files are; empty for what is none."""
    if "path" not in members:
        return ""
    path = members["path"].text()
    root = None if provider is None else provider.read_text("root")
    whole = path if root is None else f"{root.rstrip('/')}/{path.lstrip('/')}"
    return surroundings.locate_file(whole, members["path"])


def _read_jdbc(name: str, node: Node, provider: Provider | None) -> JdbcSource:
    own = set() if provider is not None else _JDBC_OWN
    members = node.members({"kind", "provider", *_JDBC_MEMBERS, *own})
    _refuse_secrets(members)
    if ("table" in members) == ("query" in members):
        node.refuse("needs either `table` or `query`")
    connection = members if provider is None else provider.members
    if "url" not in connection:
        node.refuse("needs `url`")
    given = [(each, connection[each].text()) for each in sorted(_JDBC_OWN - {"url"}) if each in connection]
    return JdbcSource(
        name,
        connection["url"].text(),
        members["table"].text() if "table" in members else None,
        members["query"].text() if "query" in members else None,
        (*given, *_read_options(members, provider)),
        _read_watermark(members.get("watermark")),
        node.place,
    )


def _read_graph(name: str, node: Node, surroundings: Surroundings) -> GraphSource:
    members = node.members({"kind", *_GRAPH_MEMBERS}, ["graph", "types"])
    types = members["types"].texts()
    if not types:
        members["types"].refuse("needs at least one type")
    graph = surroundings.find_graph(members["graph"], PipelineFileMissing)
    return GraphSource(
        name,
        graph.uri,
        graph.name,
        types,
        members["branch"].text() if "branch" in members else "main",
        members["commit"].text() if "commit" in members else None,
        node.place,
    )


def _read_options(members: Mapping[str, Node], provider: Provider | None) -> tuple[tuple[str, str], ...]:
    shared = {} if provider is None or "options" not in provider.members else _option_values(provider.members)
    own = _option_values(members) if "options" in members else {}
    return tuple({**shared, **own}.items())


def _option_values(members: Mapping[str, Node]) -> dict[str, str]:
    found = members["options"].object()
    _refuse_secrets(found)
    return {name: member.text() for name, member in found.items()}


def _read_watermark(node: Node | None) -> Watermark | None:
    if node is None:
        return None
    members = node.members({"column", "type"}, ["column", "type"])
    kind = members["type"].text().lower()
    if kind not in WATERMARK_TYPES:
        members["type"].refuse(f"must be one of: {', '.join(WATERMARK_TYPES)}")
    return Watermark(members["column"].text(), kind)


def _refuse_secrets(members: Mapping[str, Node]) -> None:
    for name, node in members.items():
        value = node.value.value
        if name.lower() in SECRET_MEMBERS and not (isinstance(value, str) and is_reference(value)):
            # The value itself must not be printed.
            node.refuse(
                "holds a secret", "write `${NAME}` and set NAME in the environment", SourceSecretInline
            )
        if isinstance(value, str) and "${" in REFERENCE.sub("", value):
            node.refuse("has a `${` that no name and `}` follow")
