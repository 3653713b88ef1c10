"""Atomic outputs: a file or folder that appears complete under its name, or not at all."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest, OmnigraphError

FOLDERS = {"node": "nodes", "edge": "edges"}
"""Below an exported folder; in each a file for every type."""
ENDINGS = (".ndjson", ".parquet", ".csv")
LANCE, PART = ".lance", "part-"
"""How the folder of a table ends, and how the files of a type begin that is written in parts."""


@contextmanager
def new_file(at: Path, *, overwrite: bool) -> Iterator[Path]:
    """An empty file to write to; it gets its name when the block ends well.

    A link stays one: what is replaced is the file that it leads to.
    """
    require_output(at)
    with _report_write_errors(at):
        if at.is_dir():
            raise BadRequest(f"cannot write '{at}': it is a folder", remedy="name a file")
        if not overwrite:
            _refuse_existing(at)
        elif at.exists() and not at.is_file():  # a device or a pipe, which a file would take away from others
            raise BadRequest(f"cannot write '{at}': it is no file", remedy="name a file")
        goal = resolve_link(at)
        temporary = _hidden_name(goal)
        create_temporary(temporary, goal)
        try:
            yield temporary
            copy_permissions(goal, temporary)
            _sync_to_disk(temporary)
            if overwrite:
                temporary.replace(goal)
            else:
                _give_free_name(temporary, goal)
            _sync_to_disk(goal.parent)
        finally:
            # The first error is the one to report, not a leftover that cannot be removed.
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(at: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new folder to write files to, each in its place; it gets its name when the block ends well.

    A link stays one: what is replaced is the folder that it leads to.
    """
    require_output(at)
    with _report_write_errors(at):
        if not overwrite:
            _refuse_existing(at)
        elif at.exists():
            _require_export(at)
        goal = resolve_link(at)
        temporary = _hidden_name(goal)
        temporary.mkdir(0o700 if goal.exists() else 0o777)
        try:
            yield temporary
            for made in sorted(temporary.rglob("*"), reverse=True):
                _sync_to_disk(made)
            copy_permissions(goal, temporary)
            _sync_to_disk(temporary)
            _swap_in(temporary, goal, overwrite=overwrite)
            _sync_to_disk(goal.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def resolve_link(at: Path) -> Path:
    """Return the file that a path refers to, following links; it need not exist."""
    goal = Path(os.path.realpath(at)) if at.is_symlink() else at
    if goal.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(at))
    return goal


def create_temporary(temporary: Path, goal: Path) -> None:
    """Create a temporary file; private while it is to replace an existing one."""
    temporary.touch(0o600 if goal.exists() else 0o666, exist_ok=False)


def copy_permissions(goal: Path, new: Path) -> None:
    """Copy the permissions of a file or folder to its replacement: a private one stays private."""
    try:
        former = goal.stat()
    except FileNotFoundError:
        return
    # Only root may change the owner, and only members the group.
    for owner, group in ((-1, former.st_gid), (former.st_uid, -1)):
        with suppress(OSError):
            os.chown(new, owner, group)
    new.chmod(stat.S_IMODE(former.st_mode))


def _refuse_existing(at: Path) -> None:
    if os.path.lexists(at):
        raise _taken_error(at)


def _taken_error(at: Path) -> BadRequest:
    return BadRequest(
        f"'{at}' exists already",
        remedy="choose another name, or replace it with --overwrite (`overwrite`)",
    )


def _require_export(at: Path) -> None:
    """Refuse to replace a folder that an export did not write: all that is in it would be deleted."""
    if not at.is_dir():
        raise BadRequest(f"cannot replace '{at}': it is not a folder", remedy="name a folder")
    expected = {FOLDERS["node"], FOLDERS["edge"]}
    for found in at.iterdir():
        if found.name not in expected or not found.is_dir():
            _refuse_foreign(at, found)
        for file in found.iterdir():
            if not _is_exported(file):
                _refuse_foreign(at, file)


def _is_exported(found: Path) -> bool:
    """Whether an export may have written it: a file, a folder of parts, or a Lance table."""
    if not found.is_dir():
        return found.suffix in ENDINGS
    if found.suffix == LANCE:
        return (found / "_versions").is_dir()
    return all(one.name.startswith(PART) and one.suffix in ENDINGS for one in found.iterdir())


def _refuse_foreign(at: Path, found: Path) -> None:
    raise BadRequest(
        f"cannot replace '{at}': it holds '{found.relative_to(at)}', which no export wrote",
        remedy="choose another folder, or remove this one yourself",
    )


def _give_free_name(temporary: Path, at: Path) -> None:
    """Name a file unless something has the name by now; of all calls only a link does that in one step."""
    try:
        at.hardlink_to(temporary)
    except FileExistsError:
        raise _taken_error(at) from None
    except OSError:  # a file system without links
        _refuse_existing(at)
        temporary.rename(at)


def _swap_in(temporary: Path, at: Path, *, overwrite: bool) -> None:
    if not overwrite or not at.exists():
        temporary.rename(at)
        return
    former = _hidden_name(at)
    at.rename(former)
    try:
        temporary.rename(at)
    except OSError:
        former.rename(at)
        raise
    shutil.rmtree(former)


def _hidden_name(at: Path) -> Path:
    """A hidden name in the same folder, so that giving the real one is a single step."""
    return at.with_name(f".{at.name}-{secrets.token_hex(8)}")


def _sync_to_disk(path: Path) -> None:
    """Sync a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _report_write_errors(at: Path) -> Iterator[None]:
    try:
        yield
    except OmnigraphError:
        raise
    except OSError as failure:
        raise BadRequest(
            f"cannot write '{at}': {failure.strerror or failure}; nothing was exported",
            remedy="check the path and the room that is left",
        ) from failure
