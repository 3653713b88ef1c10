"""Rewriting the version files of a fork for the place where its table is."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.errors import StorageFailure
from omnigraph.storage.base_paths import MalformedVersion, fork_uri, relocate_file
from omnigraph.storage.checksums import Checksum, Checksums
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.version_files import FOLDER, version_of

_log = logging.getLogger(__name__)


def rewrite_fork(objects: ObjectStore, checksums: Checksums | None, table: Location, branch: str) -> int:
    """Have every version of a fork record the present place; how many files that changed.

    Callers hold the lock of the branch: what another process removes meanwhile must not come back. The newest
    version is the last one, so that a fork whose newest version is right is right as a whole.
    """
    known = {} if checksums is None else checksums.read(table.path)
    fork = _Fork(objects, checksums, table, branch, known)
    listed = objects.list_dir(Location(fork_uri(table, branch)) / FOLDER)
    versions = {version: at for at in listed if (version := version_of(at.name)) is not None}
    return sum(fork.rewrite(versions[version]) for version in sorted(versions))


@dataclass(frozen=True, slots=True)
class _Fork:
    objects: ObjectStore
    checksums: Checksums | None
    table: Location
    branch: str
    known: Mapping[str, Checksum] = field(repr=False)
    """The checksums of its files that are noted."""

    def rewrite(self, file: Location) -> bool:
        """Whether a version file was rewritten; a damaged one stays as it is."""
        found = self.objects.read_bytes_versioned(file)
        if found is None:
            return False
        try:
            body = relocate_file(found.body, self.table, fork_uri(self.table, self.branch))
        except (MalformedVersion, UnicodeDecodeError, StorageFailure) as error:
            _log.warning("'%s' is damaged, and stays as it is: %s", file.uri, error)
            return False
        if body is None:
            return False
        name = file.uri.removeprefix(f"{self.table.uri}/")
        if self.known.get(name, Checksum.of(body)) not in (Checksum.of(found.body), Checksum.of(body)):
            _log.warning("'%s' is damaged, and stays as it is: its checksum is another one", file.uri)
            return False
        if self.checksums is not None:
            # Noted first: a run that dies in between is continued, and knows the file by what it will be.
            self.checksums.note_sums(self.table.path, {name: Checksum.of(body)})
        # Nothing changes a version file but another run of this, which writes the same.
        return self.objects.write_bytes_if_match(file, body, found.token) is not None
