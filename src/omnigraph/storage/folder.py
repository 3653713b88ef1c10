"""Control objects in a folder: every write is staged, synced and then moved or linked into place."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from omnigraph import errors
from omnigraph.storage.failures import not_found, storage_failure, wrap_os_errors
from omnigraph.storage.location import Location
from omnigraph.storage.objects import CHUNK, Fence, ObjectStore, VersionedBytes, is_residue

LOCK_FOLDER = "__locks"
LOCK_SUFFIX = ".lock"
_READ_BYTES = 1 << 16
_RACES = 100
"""So often another process may be faster."""

# In a bucket `a/b` can exist whatever `a` is; so a file in the place of a folder means only "not there".
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS)
"""What file systems answer that cannot give a file a second name."""


class FolderStore(ObjectStore):
    """Objects as files; what a reader sees is always whole and on disk."""

    def _check_location(self, at: Location) -> None:
        super()._check_location(at)
        at.require_local()
        folder, _, name = at.uri.rpartition("/")
        if name.endswith(LOCK_SUFFIX) and folder.endswith(f"/{LOCK_FOLDER}"):
            # Closing any descriptor of a lock file drops the lock this process may hold on it.
            raise errors.InvalidName(name, f"'{at.uri}' is a lock, not an object")

    def _get_object(self, at: Location) -> VersionedBytes | None:
        found = self._read(at)
        return None if found is None else VersionedBytes(found[0], _content_token(found[0]), found[1])

    def _read_body(self, at: Location) -> bytes | None:
        found = self._read(at)  # without the token, which costs more than reading
        return None if found is None else found[0]

    def _read(self, at: Location) -> tuple[bytes, float] | None:
        """What a file holds, and when it was written."""
        with wrap_os_errors("read", at.uri):
            try:
                # Not `open`: this happens several times in every write.
                descriptor = os.open(at.uri, os.O_RDONLY | os.O_CLOEXEC)
            except _NOT_THERE:
                return None
            try:
                return _read_whole(descriptor)
            except IsADirectoryError:
                return None
            finally:
                os.close(descriptor)

    def _put_object(self, at: Location, body: bytes) -> None:
        with wrap_os_errors("write", at.uri), _stage_file(at.uri, body) as staged:
            os.replace(staged, at.uri)  # noqa: PTH105 - here and below: what every write does goes by texts

    def _create_object(self, at: Location, body: bytes) -> str | None:
        with wrap_os_errors("create", at.uri):
            created = create_file(at.path, body)
        return _content_token(body) if created else None

    def _swap_object(self, at: Location, body: bytes, token: str) -> str | None:
        found = self._get_object(at)
        if found is None or found.token != token:
            return None
        self._put_object(at, body)
        return _content_token(body)

    def _object_is_stored(self, at: Location) -> bool:
        with wrap_os_errors("look for", at.uri):
            try:
                return not stat.S_ISDIR(at.path.stat().st_mode)
            except _NOT_THERE:
                return False

    def _object_exists(self, at: Location) -> bool:
        with wrap_os_errors("look for", at.uri):
            try:
                return not stat.S_ISDIR(at.path.stat().st_mode) or _has_objects(at.path)
            except _NOT_THERE:
                return False

    def _list_names(self, at: Location) -> list[str]:
        with wrap_os_errors("list", at.uri):
            try:
                with os.scandir(at.uri) as entries:
                    return [entry.name for entry in entries if entry.is_file()]
            except _NOT_THERE:
                return []

    def _list_sizes(self, at: Location) -> dict[str, int]:
        found = {}
        with wrap_os_errors("list", at.uri):
            try:
                with os.scandir(at.path) as entries:
                    for entry in entries:
                        # Another process may remove it meanwhile.
                        with suppress(FileNotFoundError):
                            if entry.is_file():
                                found[entry.name] = entry.stat().st_size
            except _NOT_THERE:
                return {}
        return found

    def _all_sizes(self, at: Location) -> dict[str, int]:
        found = {}
        with wrap_os_errors("list", at.uri):
            for folder, _, names in os.walk(at.path, onerror=_ignore_missing):
                start = os.path.relpath(folder, at.uri)
                for name in names:
                    # Another process may remove it meanwhile.
                    with suppress(FileNotFoundError):
                        size = os.stat(f"{folder}/{name}").st_size  # noqa: PTH116
                        found[name if start == "." else f"{start}/{name}"] = size
        return found

    def _read_chunks(self, at: Location) -> Iterator[bytes]:
        with wrap_os_errors("read", at.uri):
            try:
                file = at.path.open("rb", buffering=0)
            except _NOT_THERE:
                raise not_found(at.uri) from None
            with file:
                while chunk := file.read(CHUNK):
                    yield chunk

    def _put_chunks(self, at: Location, chunks: Iterable[bytes]) -> None:
        with wrap_os_errors("write", at.uri):
            staged = f"{at.uri}#{secrets.randbelow(10**18)}"
            descriptor = _open_new_in(_parent_folder(at.uri), staged)
            try:
                try:
                    for chunk in chunks:
                        _write_all(descriptor, chunk)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                os.replace(staged, at.uri)  # noqa: PTH105
                _sync_folder(_parent_folder(at.uri))
            finally:
                with suppress(OSError):
                    os.unlink(staged)  # noqa: PTH108

    def _list_folders(self, at: Location) -> list[str]:
        with wrap_os_errors("list", at.uri):
            try:
                with os.scandir(at.path) as entries:
                    names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            except _NOT_THERE:
                return []
            return [name for name in names if _has_objects_now(at.path / name)]

    def _list_all(self, at: Location) -> list[str]:
        with wrap_os_errors("list", at.uri):
            try:
                return [found.name for found in at.path.iterdir()]
            except _NOT_THERE:
                return []

    def _last_change(self, at: Location) -> float | None:
        times = []
        with wrap_os_errors("list", at.uri):
            for folder, _, names in os.walk(at.path, onerror=_ignore_missing):
                for name in names:
                    # Another process may remove it meanwhile.
                    with suppress(FileNotFoundError):
                        times.append(os.lstat(f"{folder}/{name}").st_mtime)
        return max(times, default=None)

    def _discard_partial(self, at: Location, seconds: float) -> int:
        latest, removed = time.time() - seconds, 0
        with wrap_os_errors("clean up", at.uri):
            try:
                with os.scandir(at.path) as entries:
                    found = [entry for entry in entries if is_residue(entry.name)]
            except _NOT_THERE:
                return 0
            for entry in found:
                # Its writer may be alive after all, and just have moved it into place.
                with suppress(FileNotFoundError):
                    if entry.is_file(follow_symlinks=False) and entry.stat().st_mtime < latest:
                        Path(entry.path).unlink()
                        removed += 1
        return removed

    def _rename_object(self, source: Location, target: Location) -> bool:
        with wrap_os_errors("rename", source.uri):
            if not _is_file(source.path):
                return False
            _make_folders(target.path.parent)
            try:
                source.path.replace(target.path)
            except FileNotFoundError:
                return False
            _sync_folder(target.path.parent)
            if source.path.parent != target.path.parent:
                _sync_folder(source.path.parent)
        return True

    def _share_object(self, source: Location, target: Location) -> bool:
        with wrap_os_errors("share", source.uri):
            if not _is_file(source.path):
                return False
            _make_folders(target.path.parent)
            try:
                target.path.hardlink_to(source.path)
            except FileExistsError:
                return True
            except OSError as failure:
                if failure.errno not in _NO_LINKS:
                    raise
                _copy_file(source.path, target.path)
            _sync_folder(target.path.parent)
        return True

    def _delete_object(self, at: Location, fence: Fence | None) -> None:
        if fence is not None:
            fence.confirm()
        with wrap_os_errors("delete", at.uri):
            try:
                if stat.S_ISDIR(os.lstat(at.uri).st_mode):
                    return
                os.unlink(at.uri)  # noqa: PTH108
                _sync_folder(_parent_folder(at.uri))
            except _NOT_THERE:
                return

    def _delete_prefix(self, at: Location, fence: Fence | None) -> None:
        if fence is not None:
            fence.confirm()
        with wrap_os_errors("delete everything below", at.uri):
            if not _is_folder(at.path):
                return
            _remove_tree(at.path)
            with suppress(FileNotFoundError):
                _sync_folder(at.path.parent)


def _copy_file(source: Path, target: Path) -> None:
    """Make a whole copy appear, of a file that may be larger than memory."""
    partial = target.with_name(f"{target.name}#{secrets.randbits(63)}")
    try:
        shutil.copyfile(source, partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def create_file(path: Path, body: bytes) -> bool:
    """Make a whole file appear at `path`, unless something is there already."""
    with _stage_file(str(path), body) as staged:
        try:
            os.link(staged, path)
        except FileExistsError:
            if _is_folder(path):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
            return False
        except OSError as failure:
            raise storage_failure(failure, "make a hard link for", str(path), linking=True) from failure
    return True


def _content_token(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@contextmanager
def _stage_file(target: str, body: bytes) -> Iterator[str]:
    """The body on disk under a temporary name beside `target`; what was done with it is synced too."""
    folder, staged = _parent_folder(target), f"{target}#{secrets.randbelow(10**18)}"
    descriptor = _open_new_in(folder, staged)
    try:
        try:
            _write_all(descriptor, body)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield staged
        _sync_folder(folder)
    finally:
        # Whatever failed first is the news; a name left behind is invisible and harmless.
        with suppress(OSError):
            os.unlink(staged)  # noqa: PTH108


def _open_new_in(folder: str, path: str) -> int:
    """A new file in a folder that is made where it is missing; others remove one that they find empty."""
    for _ in range(_RACES):
        try:
            return _open_new(path)
        except _NOT_THERE:
            _make_folders(Path(folder))
    return _open_new(path)


def _open_new(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _parent_folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _write_all(descriptor: int, body: bytes) -> None:
    left = memoryview(body)
    while left:
        left = left[os.write(descriptor, left) :]


def _read_whole(descriptor: int) -> tuple[bytes, float]:
    """What an open file holds, and when it was written."""
    found = os.fstat(descriptor)
    parts = [os.read(descriptor, found.st_size + 1)]
    while parts[-1]:
        parts.append(os.read(descriptor, _READ_BYTES))
    return b"".join(parts), found.st_mtime


def _make_folders(folder: Path) -> None:
    missing = []
    while not _is_folder(folder):
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        try:
            each.mkdir(exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, f"'{each}' is a file") from None
        _sync_folder(each.parent)


def _sync_folder(folder: str | Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except _NOT_THERE:
        return False


def _is_folder(path: Path) -> bool:
    """Like `Path.is_dir`, but a folder that may not be looked at is an error, not a no."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except _NOT_THERE:
        return False


def _has_objects(folder: Path) -> bool:
    """True when a file that is no residue is anywhere below; empty folders are nothing in a bucket."""
    below = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append(Path(entry.path))
            elif not is_residue(entry.name):
                return True
    return any(_has_objects_now(each) for each in below)


def _ignore_missing(error: OSError) -> None:
    if not isinstance(error, _NOT_THERE):
        raise error


def _has_objects_now(folder: Path) -> bool:
    try:
        return _has_objects(folder)
    except FileNotFoundError:
        return False


def _remove_tree(folder: Path) -> None:
    """Remove a folder and all below it; what another process removes meanwhile is fine."""
    try:
        with os.scandir(folder) as entries:
            found = list(entries)
    except FileNotFoundError:
        return
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            _remove_tree(Path(entry.path))
        else:
            Path(entry.path).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        # A folder may stand elsewhere, behind a link with its name.
        folder.unlink() if folder.is_symlink() else folder.rmdir()
