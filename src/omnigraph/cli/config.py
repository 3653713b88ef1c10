"""The operator's config file: who I am, the graphs I work with, and how I like results."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cli.invocation import current
from omnigraph.cli.output import print_note
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.engine.load.sources.yaml_text import Told

HOME_SETTING = "OMNIGRAPH_HOME"
FILE = "config.yaml"
OUTPUTS = ("table", "kv", "csv", "jsonl", "json")
WIDTH = 80
LAYOUTS = ("truncate", "wrap")
SCOPES = ("server", "cluster", "store")


@dataclass(frozen=True, slots=True)
class Profile:
    """A name for where to work; it binds exactly one of server, cluster and store."""

    name: str
    server: str | None = None
    cluster: str | None = None
    store: str | None = None
    default_graph: str | None = None

    @property
    def bindings(self) -> dict[str, str]:
        """What it binds, by kind."""
        found = {"server": self.server, "cluster": self.cluster, "store": self.store}
        return {kind: target for kind, target in found.items() if target is not None}


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds when nothing else is said."""

    output: str = "table"
    table_max_column_width: int = WIDTH
    table_cell_layout: str = "truncate"
    server: str | None = None
    store: str | None = None
    default_graph: str | None = None


@dataclass(frozen=True, slots=True)
class Alias:
    """A query under a short name: of a file, on a store, or one that a server keeps."""

    name: str
    query: str | None = None
    file: Path | None = None
    server: str | None = None
    graph: str | None = None
    store: str | None = None
    branch: str | None = None
    args: tuple[str, ...] = ()
    """The parameters that arguments on the command line are for, in their order."""
    params: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file."""

    path: Path | None = None
    actor: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)
    """The URL of each."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """The root of each."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    defaults: Defaults = Defaults()
    aliases: Mapping[str, Alias] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return FILE if self.path is None else str(self.path)


def config() -> Config:
    """The config of this run; read when it is first needed."""
    invocation = current()
    if invocation.config is None:
        invocation.config = read_config(config_path())
    return invocation.config


def config_path() -> Path | None:
    """Where the file is looked for; None for somebody without a home."""
    named = os.environ.get(HOME_SETTING)
    try:
        return (Path(named) if named else Path("~/.omnigraph")).expanduser() / FILE
    except RuntimeError:
        return None


def read_config(path: Path | None) -> Config:
    """The file as values; one that is not there is empty, and unknown keys are only warned about."""
    text = None if path is None else _text_of(path)
    if path is None or text is None:
        return Config(path)
    from omnigraph.engine.load.sources.yaml_text import read_yaml

    return _Reader(path).config(read_yaml(text, str(path)))


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
        raise BadRequest(f"cannot read '{path}': {reason}", remedy="mend or remove it") from failure


class _Reader:
    """Turns the values of one file into the config, and says where a value is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self, told: Told) -> Config:
        known = ("operator", "servers", "clusters", "profiles", "defaults", "aliases")
        top = self._members(told, "the file", known)
        operator = self._members(top.get("operator"), "operator", ("actor",))
        return Config(
            self.path,
            actor=self._text(operator.get("actor"), "operator.actor"),
            servers=self._addresses(top.get("servers"), "servers", "url"),
            clusters=self._addresses(top.get("clusters"), "clusters", "root"),
            profiles={name: self._profile(name, one) for name, one in self._all(top, "profiles").items()},
            defaults=self._defaults(top.get("defaults")),
            aliases={name: self._alias(name, one) for name, one in self._all(top, "aliases").items()},
        )

    def _profile(self, name: str, told: Told) -> Profile:
        where = f"profiles.{name}"
        one = self._members(told, where, (*SCOPES, "default_graph"))
        texts = {key: self._text(value, f"{where}.{key}") for key, value in one.items()}
        return Profile(name, **{**texts, "store": self._place(texts.get("store"))})

    def _defaults(self, told: Told | None) -> Defaults:
        known = ("output", "table_max_column_width", "table_cell_layout", "server", "store", "default_graph")
        one = self._members(told, "defaults", known)
        found = Defaults(
            output=self._choice(one.get("output"), "defaults.output", OUTPUTS) or "table",
            table_max_column_width=self._number(one.get("table_max_column_width")),
            table_cell_layout=self._choice(
                one.get("table_cell_layout"), "defaults.table_cell_layout", LAYOUTS
            )
            or "truncate",
            server=self._text(one.get("server"), "defaults.server"),
            store=self._place(self._text(one.get("store"), "defaults.store")),
            default_graph=self._text(one.get("default_graph"), "defaults.default_graph"),
        )
        for other in ("server", "default_graph"):
            if found.store is not None and getattr(found, other) is not None:
                raise self._wrong(told, f"defaults.{other} and defaults.store are mutually exclusive")
        return found

    def _alias(self, name: str, told: Told) -> Alias:
        where = f"aliases.{name}"
        plain = ("query", "server", "graph", "branch")
        one = self._members(told, where, (*plain, "file", "store", "args", "params", "format"))
        file = self._text(one.get("file"), f"{where}.file")
        args, params = one.get("args"), one.get("params")
        names = [] if args is None else args.value
        if not isinstance(names, list) or not all(isinstance(item.value, str) for item in names):
            raise self._wrong(args, f"{where}.args must be a list of parameter names")
        return Alias(
            name,
            **{key: self._text(one.get(key), f"{where}.{key}") for key in plain},
            file=None if file is None else self.path.parent / Path(file).expanduser(),
            store=self._place(self._text(one.get("store"), f"{where}.store")),
            args=tuple(item.value for item in names),
            params={key: value.plain() for key, value in self._mapping(params, f"{where}.params").items()},
            format=self._choice(one.get("format"), f"{where}.format", OUTPUTS),
        )

    def _addresses(self, told: Told | None, where: str, key: str) -> dict[str, str]:
        found = {}
        for name, one in self._mapping(told, where).items():
            place = f"{where}.{name}"
            text = self._text(self._members(one, place, (key,)).get(key), f"{place}.{key}")
            if text is None:
                raise self._wrong(one, f"{place}.{key} is missing")
            found[name] = text
        return found

    # --- single values ---------------------------------------------------------------------------

    def _all(self, top: Mapping[str, Told], key: str) -> dict[str, Told]:
        return self._mapping(top.get(key), key)

    def _members(self, told: Told | None, where: str, known: tuple[str, ...]) -> dict[str, Told]:
        found = self._mapping(told, where)
        for name in [name for name in found if name not in known]:
            line = found.pop(name).line
            print_note(f"warning: {self.path}:{line}: unknown key '{name}' in {where} is ignored")
        return found

    def _mapping(self, told: Told | None, where: str) -> dict[str, Told]:
        if told is None or told.value is None:
            return {}
        if not isinstance(told.value, dict):
            raise self._wrong(told, f"{where} must have members")
        return dict(told.value)

    def _text(self, told: Told | None, where: str) -> str | None:
        if told is None or told.value is None:
            return None
        if not isinstance(told.value, str) or not told.value.strip():
            raise self._wrong(told, f"{where} must be a text")
        return told.value

    def _choice(self, told: Told | None, where: str, choices: tuple[str, ...]) -> str | None:
        text = self._text(told, where)
        if text is not None and text not in choices:
            raise self._wrong(told, f"{where} must be one of {', '.join(choices)}")
        return text

    def _number(self, told: Told | None) -> int:
        if told is None or told.value is None:
            return WIDTH
        if not isinstance(told.value, int) or isinstance(told.value, bool) or told.value < 1:
            raise self._wrong(told, "defaults.table_max_column_width must be a number from 1 on")
        return told.value

    def _place(self, text: str | None) -> str | None:
        """A folder counts from the one of the file, so that a profile means the same everywhere."""
        return text if text is None or "://" in text else str(self.path.parent / Path(text).expanduser())

    def _wrong(self, told: Told | None, reason: str) -> BadRequest:
        line = None if told is None else told.line
        place = str(self.path) if line is None else f"{self.path}:{line}"
        return BadRequest(f"{place}: {reason}")
