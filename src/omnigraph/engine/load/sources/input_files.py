"""Which files a load reads: in the order given, folders and patterns by path."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.item import ENDINGS, Format, format_of, lines_format
from omnigraph.engine.load.sources.pipes import ReceivedPipe
from omnigraph.errors import BadRequest
from omnigraph.storage.input_files import StoredFile, find_bucket_file, is_in_bucket, list_bucket_files

_MAGIC = re.compile(r"[*?\[]")
_IGNORED = ("_", ".")
"""How names begin that tools leave beside data."""
_LANCE = f".{Format.LANCE}"

FormatOf = Callable[[str], Format | None]
"""The format of a file by its path."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to be read, or a Lance table."""

    file: str
    """As the user named it."""
    at: str
    """The same place, absolute."""
    size: int
    format: Format
    folder: str
    """The folder that inner names are relative to: the one the user gave, or the one the file is in."""

    @property
    def name(self) -> str:
        """The last part."""
        return self.file.rstrip("/").rpartition("/")[2]


def find_inputs(inputs: Iterable[str | os.PathLike[str]], formats: FormatOf = format_of) -> list[InputFile]:
    """The files behind paths, folders, patterns such as `data/*.parquet`, and the same in buckets."""
    given = list(inputs)
    if not given:
        raise BadRequest("a load needs at least one file")
    found: list[InputFile] = []
    for one in given:
        name = os.fspath(one)
        try:
            if isinstance(one, ReceivedPipe):
                found.append(_received_file(one, formats))
            else:
                found += _in_bucket(name, formats) if is_in_bucket(name) else _find_local(name, formats)
        except OSError as failure:
            reason = f"cannot read '{failure.filename or name}': {failure.strerror}"
            raise BadRequest(reason, remedy="check the path") from failure
    return found


def _require_format(name: str, formats: FormatOf) -> Format:
    found = formats(name)
    if found is None:
        raise BadRequest(
            f"'{name}' has none of the endings a load knows",
            remedy=f"it may end with {', '.join(sorted(ENDINGS))}; else give its `format` in a mapping",
        )
    return found


def _require_any(found: list[InputFile], otherwise: str) -> list[InputFile]:
    if not found:
        raise BadRequest(otherwise, remedy="check the path")
    return found


def _no_such_file(name: str) -> BadRequest:
    return BadRequest(f"cannot read '{name}': there is no such file", remedy="check the path")


def _nothing_below(name: str) -> str:
    return f"folder '{name}' has no files that end with {', '.join(sorted(ENDINGS))}"


def pattern(text: str) -> re.Pattern[str]:
    """A pattern of paths: `*`, `?` and `[...]` stay within a name, `**` stands for any folders."""
    parts: list[str] = []
    rest = text
    while rest:
        if rest.startswith("**/"):
            parts.append("(?:[^/]+/)*")
            rest = rest[3:]
        elif bracket := re.match(r"\[(!?)(\]?[^\]/]*)\]", rest):
            inner = bracket[2].replace("\\", r"\\").replace("[", r"\[")
            parts.append(f"[{'^/' if bracket[1] else ''}{inner}]")
            rest = rest[bracket.end() :]
        else:
            parts.append({"*": "[^/]*", "?": "[^/]"}.get(rest[0], re.escape(rest[0])))
            rest = rest[1:]
    return re.compile("".join(parts), re.DOTALL)


def cover_path(path: str) -> tuple[str, ...]:
    """Patterns for a file, the files below a folder, or those that a pattern means."""
    name = path.rstrip("/") or path
    if _MAGIC.search(name) and not os.path.lexists(name):
        return (name, f"{name}/**/*")
    plain = cover_file(name)
    return (plain, f"{plain}/**/*")


def cover_file(name: str) -> str:
    """The pattern for one file, whatever signs its name has."""
    return re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", name)


# --- this machine --------------------------------------------------------------------------------


def _find_local(name: str, formats: FormatOf) -> list[InputFile]:
    path = Path(name)
    if path.is_dir():
        if format_of(path.name) is Format.LANCE:
            return [_lance_table(name, path.parent)]
        return _require_any([*_find_below(path, path, formats)], _nothing_below(name))
    if path.exists():
        # A user who names a single file knows what is in it, usually lines.
        return [_local_file(path, path.parent, formats(name) or lines_format(name))]
    if not glob.has_magic(name):
        raise _no_such_file(name)
    matched = sorted(Path(at) for at in glob.glob(name, recursive=True))  # noqa: PTH207 - a pattern may be absolute
    return _require_any(
        [one for at in matched for one in _match_pattern(at, formats)], f"no file matches '{name}'"
    )


def _match_pattern(path: Path, formats: FormatOf) -> list[InputFile]:
    if not path.is_dir():
        return [_local_file(path, path.parent, _require_format(str(path), formats))]
    return [_lance_table(str(path), path.parent)] if format_of(path.name) is Format.LANCE else []


def _find_below(folder: Path, root: Path, formats: FormatOf) -> Iterable[InputFile]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith(_IGNORED):
            continue
        if path.is_dir():
            if format_of(path.name) is Format.LANCE:
                yield _lance_table(str(path), root)
            elif not path.is_symlink():  # a link may lead back to where it is
                yield from _find_below(path, root, formats)
        elif (known := formats(str(path))) is not None:
            yield _local_file(path, root, known)


def _local_file(path: Path, root: Path, known: Format) -> InputFile:
    if known is Format.LANCE:
        raise BadRequest(f"'{path}' is a file; a Lance table is a folder", remedy="check the path")
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        # Its size is unknown, and it may never end.
        raise BadRequest(f"'{path}' is no file", remedy="name a pipe on its own, and leave out anything else")
    return InputFile(str(path), str(path.absolute()), found.st_size, known, str(root))


def _received_file(one: ReceivedPipe, formats: FormatOf) -> InputFile:
    known = one.format or formats(one.name) or lines_format(one.name)
    if known is Format.LANCE:
        raise BadRequest(f"'{one.name}' is a pipe; a Lance table is a folder", remedy="check the path")
    folder = str(Path(one.name).parent) if one.folder is None else one.folder
    return InputFile(one.name, one.at, Path(one.at).stat().st_size, known, folder)


def _lance_table(name: str, root: Path) -> InputFile:
    path = Path(name)
    return InputFile(str(path), str(path.absolute()), 0, Format.LANCE, str(root))


# --- a bucket ------------------------------------------------------------------------------------


def _in_bucket(name: str, formats: FormatOf) -> list[InputFile]:
    uri = name.rstrip("/")
    if format_of(uri) is Format.LANCE and not _MAGIC.search(uri):
        return [InputFile(uri, uri, 0, Format.LANCE, uri.rpartition("/")[0])]
    if uri.count("/") > 2 and (exact := find_bucket_file(uri)) is not None:
        return [_stored_object(exact, uri.rpartition("/")[0], _require_format(uri, formats))]
    magic = _MAGIC.search(uri)
    if magic is None:
        return _bucket_folder(name, uri, formats)
    wanted, base = pattern(uri), uri[: magic.start()].rpartition("/")[0]
    matched = [one for one in _list_objects(base) if wanted.fullmatch(one.uri)]
    return _require_any(
        [
            _stored_object(one, one.uri.rpartition("/")[0], _require_format(one.uri, formats))
            for one in matched
        ],
        f"no file matches '{name}'",
    )


def _bucket_folder(name: str, uri: str, formats: FormatOf) -> list[InputFile]:
    below = [one for one in _list_objects(uri) if not _is_ignored(one.uri[len(uri) :])]
    if not below:
        raise _no_such_file(name)
    known = ((one, formats(one.uri)) for one in below)
    return _require_any(
        [_stored_object(one, uri, form) for one, form in known if form is not None], _nothing_below(name)
    )


def _list_objects(uri: str) -> Sequence[StoredFile]:
    """Everything below a folder by path, with a Lance table as one."""
    found: dict[str, StoredFile] = {}
    for one in list_bucket_files(uri):
        table, inside, _ = one.uri.partition(f"{_LANCE}/")
        at = f"{table}{_LANCE}" if inside else one.uri
        found[at] = StoredFile(at, one.size)
    return [found[at] for at in sorted(found, key=lambda each: each.split("/"))]


def _is_ignored(path: str) -> bool:
    return any(part.startswith(_IGNORED) for part in path.split("/") if part)


def _stored_object(one: StoredFile, root: str, known: Format) -> InputFile:
    return InputFile(one.uri, one.uri, 0 if known is Format.LANCE else one.size, known, root)
