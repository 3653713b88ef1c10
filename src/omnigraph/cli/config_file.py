"""Reads the operator's config file, and reports the line of each mistake."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from omnigraph.cli.config import FILE, LAYOUTS, OUTPUTS, SCOPES, WIDTH, Alias, Config, Defaults, Profile
from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.output import print_note
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest

if TYPE_CHECKING:
    from omnigraph.yaml_text import YamlValue

HOME_SETTING = "OMNIGRAPH_HOME"


def current_config() -> Config:
    """Return the config of this run, read on first use."""
    invocation = current_invocation()
    if invocation.config is None:
        invocation.config = read_config(config_path())
    return invocation.config


def config_path() -> Path | None:
    """Return the path of the config file; None without a home folder."""
    named = os.environ.get(HOME_SETTING)
    try:
        return (Path(named) if named else Path("~/.omnigraph")).expanduser() / FILE
    except RuntimeError:
        return None


def read_config(path: Path | None) -> Config:
    """Read the config file; a missing one is empty, and unknown keys are only warned about."""
    text = None if path is None else _text_of(path)
    if path is None or text is None:
        return Config(path)
    from omnigraph.yaml_text import read_yaml

    return _Reader(path).read_file(read_yaml(text, str(path)))


def _text_of(path: Path) -> str | None:
    from omnigraph.yaml_text import read_yaml_text

    try:
        return read_yaml_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
        raise BadRequest(f"cannot read '{path}': {reason}", remedy="fix or remove it") from failure


class _Reader:
    """Turns the values of one file into the config, and says where a value is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_file(self, node: YamlValue) -> Config:
        known = ("operator", "servers", "clusters", "profiles", "defaults", "aliases")
        top = self._read_members(node, "the file", known)
        operator = self._read_members(top.get("operator"), "operator", ("actor",))
        return Config(
            self.path,
            actor=self._read_text(operator.get("actor"), "operator.actor"),
            servers=self._read_addresses(top.get("servers"), "servers", "url"),
            clusters=self._read_addresses(top.get("clusters"), "clusters", "root"),
            profiles={
                name: self._read_profile(name, one)
                for name, one in self._read_section(top, "profiles").items()
            },
            defaults=self._read_defaults(top.get("defaults")),
            aliases={
                name: self._read_alias(name, one) for name, one in self._read_section(top, "aliases").items()
            },
        )

    def _read_profile(self, name: str, node: YamlValue) -> Profile:
        where = f"profiles.{name}"
        one = self._read_members(node, where, (*SCOPES, "default_graph"))
        texts = {key: self._read_text(value, f"{where}.{key}") for key, value in one.items()}
        return Profile(name, **{**texts, "store": self._resolve_place(texts.get("store"))})

    def _read_defaults(self, node: YamlValue | None) -> Defaults:
        places = ("server", "store", "default_graph")
        known = ("output", "table_max_column_width", "table_cell_layout", *places, "merge_granularity")
        one = self._read_members(node, "defaults", known)
        found = Defaults(
            output=self._read_choice(one.get("output"), "defaults.output", OUTPUTS) or "table",
            table_max_column_width=self._read_number(one.get("table_max_column_width")),
            table_cell_layout=self._read_choice(
                one.get("table_cell_layout"), "defaults.table_cell_layout", LAYOUTS
            )
            or "truncate",
            server=self._read_text(one.get("server"), "defaults.server"),
            store=self._resolve_place(self._read_text(one.get("store"), "defaults.store")),
            default_graph=self._read_text(one.get("default_graph"), "defaults.default_graph"),
            merge_granularity=self._read_granularity(one.get("merge_granularity")),
        )
        for other in ("server", "default_graph"):
            if found.store is not None and getattr(found, other) is not None:
                raise self._invalid_error(node, f"defaults.{other} and defaults.store are mutually exclusive")
        return found

    def _read_alias(self, name: str, node: YamlValue) -> Alias:
        where = f"aliases.{name}"
        plain = ("query", "server", "graph", "branch")
        one = self._read_members(node, where, (*plain, "file", "store", "args", "params", "format"))
        file = self._read_text(one.get("file"), f"{where}.file")
        args, params = one.get("args"), one.get("params")
        names = [] if args is None else args.value
        if not isinstance(names, list) or not all(isinstance(item.value, str) for item in names):
            raise self._invalid_error(args, f"{where}.args must be a list of parameter names")
        return Alias(
            name,
            **{key: self._read_text(one.get(key), f"{where}.{key}") for key in plain},
            file=None if file is None else self.path.parent / Path(file).expanduser(),
            store=self._resolve_place(self._read_text(one.get("store"), f"{where}.store")),
            args=tuple(item.value for item in names),
            params={
                key: value.plain() for key, value in self._require_mapping(params, f"{where}.params").items()
            },
            format=self._read_choice(one.get("format"), f"{where}.format", OUTPUTS),
        )

    def _read_addresses(self, node: YamlValue | None, where: str, key: str) -> dict[str, str]:
        found = {}
        for name, one in self._require_mapping(node, where).items():
            place = f"{where}.{name}"
            text = self._read_text(self._read_members(one, place, (key,)).get(key), f"{place}.{key}")
            if text is None:
                raise self._invalid_error(one, f"{place}.{key} is missing")
            found[name] = text
        return found

    # --- single values ---------------------------------------------------------------------------

    def _read_section(self, top: Mapping[str, YamlValue], key: str) -> dict[str, YamlValue]:
        return self._require_mapping(top.get(key), key)

    def _read_members(
        self, node: YamlValue | None, where: str, known: tuple[str, ...]
    ) -> dict[str, YamlValue]:
        found = self._require_mapping(node, where)
        for name in [name for name in found if name not in known]:
            line = found.pop(name).line
            print_note(f"warning: {self.path}:{line}: unknown key '{name}' in {where} is ignored")
        return found

    def _require_mapping(self, node: YamlValue | None, where: str) -> dict[str, YamlValue]:
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            raise self._invalid_error(node, f"{where} must have members")
        return dict(node.value)

    def _read_text(self, node: YamlValue | None, where: str) -> str | None:
        if node is None or node.value is None:
            return None
        if not isinstance(node.value, str) or not node.value.strip():
            raise self._invalid_error(node, f"{where} must be a text")
        return node.value

    def _read_choice(self, node: YamlValue | None, where: str, choices: tuple[str, ...]) -> str | None:
        text = self._read_text(node, where)
        if text is not None and text not in choices:
            raise self._invalid_error(node, f"{where} must be one of {', '.join(choices)}")
        return text

    def _read_granularity(self, node: YamlValue | None) -> Literal["row", "property"] | None:
        match self._read_choice(node, "defaults.merge_granularity", ("row", "property")):
            case "row":
                return "row"
            case "property":
                return "property"
            case _:
                return None

    def _read_number(self, node: YamlValue | None) -> int:
        if node is None or node.value is None:
            return WIDTH
        if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 1:
            raise self._invalid_error(node, "defaults.table_max_column_width must be a number from 1 on")
        return node.value

    def _resolve_place(self, text: str | None) -> str | None:
        """A folder counts from the one of the file, so that a profile means the same everywhere."""
        return text if text is None or "://" in text else str(self.path.parent / Path(text).expanduser())

    def _invalid_error(self, node: YamlValue | None, reason: str) -> BadRequest:
        line = None if node is None else node.line
        place = str(self.path) if line is None else f"{self.path}:{line}"
        return BadRequest(f"{place}: {reason}")


PROFILE_SETTING = "OMNIGRAPH_PROFILE"
STORE_SETTING = "OMNIGRAPH_STORE"


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to work."""

    kind: str
    """`server`, `cluster` or `store`."""
    target: str
    """The name of a server or cluster, or a place."""
    default_graph: str | None
    origin: str
    """What says so, for messages."""


def active_profile(named: str | None = None) -> str | None:
    """The profile that is chosen: the one named, else that of the environment."""
    return os.environ.get(PROFILE_SETTING) or None if named is None else named


def implied_scope(config: Config, named: str | None) -> Scope | None:
    """Where to work when a command does not say it."""
    store = os.environ.get(STORE_SETTING)
    if store and named is None:
        return Scope("store", store, None, STORE_SETTING)
    name = active_profile(named)
    if name is not None:
        return profile_scope(find_profile(config, name))
    defaults = config.defaults
    for kind, target in (("server", defaults.server), ("store", defaults.store)):
        if target is not None:
            return Scope(kind, target, defaults.default_graph, f"the default {kind}")
    return None


def find_profile(config: Config, name: str) -> Profile:
    """A profile of the config file."""
    found = config.profiles.get(name)
    if found is None:
        known = ", ".join(config.profiles) or "none"
        raise BadRequest(f"there is no profile '{name}'", remedy=f"profiles in {config.place}: {known}")
    return found


def profile_scope(found: Profile) -> Scope:
    """What a profile binds."""
    bindings = found.bindings
    if len(bindings) != 1:
        bound = " and ".join(bindings) or "none of them"
        raise BadRequest(
            f"profile '{found.name}' must bind exactly one of {', '.join(SCOPES)}, and binds {bound}"
        )
    [(kind, target)] = bindings.items()
    return Scope(kind, target, found.default_graph, f"profile '{found.name}'")
