"""Control objects in an S3 bucket, or in memory for tests; every method is one request where S3 allows it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import MemoryStore, S3Store

from omnigraph import errors
from omnigraph.storage.failures import (
    FailureKind,
    classify_store_error,
    is_absent,
    is_precondition,
    not_found,
    storage_failure,
)
from omnigraph.storage.location import Location
from omnigraph.storage.objects import CHUNK, Fence, ObjectStore, Observer, VersionedBytes

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

# A store that does not answer is reported within the time a lease lives, not after minutes.
_CONNECT_TIMEOUT = timedelta(seconds=5)
_REQUEST_TIMEOUT = timedelta(seconds=20)
_RETRY_TIMEOUT = timedelta(seconds=20)
_MAX_RETRIES = 4
# A request behind a fence ends well within the time for which the fence holds once it is confirmed.
_PROMPT_TIMEOUT = timedelta(seconds=10)
_FENCED_ATTEMPTS = 3

# obstore raises built-in types for a missing object (FileNotFoundError) and a malformed key (ValueError).
_CLIENT_ERRORS = (BaseError, OSError, ValueError)

_MEMORIES = itertools.count(1)
_client_process: int | None = None


class BucketStore(ObjectStore):
    """Objects of one bucket, through one client that threads may share."""

    def __init__(
        self,
        bucket: str,
        client: Client,
        scope: str,
        observe: Observer | None = None,
        *,
        connect_promptly: Callable[[], Client] | None = None,
    ) -> None:
        """`connect_promptly` makes the client for deletes behind a fence, where it is another one."""
        super().__init__(observe)
        self.scope = scope
        self._bucket = bucket
        self._client = client
        self._connect_promptly = connect_promptly

    @classmethod
    def connect(cls, root: Location, observe: Observer | None = None) -> BucketStore:
        """The bucket of `root`, reached as the AWS environment says."""
        endpoint = root.storage_options().get("aws_endpoint", "aws")
        promptly = partial(s3_client, root, prompt=True)
        return cls(root.bucket, s3_client(root), endpoint, observe, connect_promptly=promptly)

    @classmethod
    def in_memory(cls, bucket: str, observe: Observer | None = None) -> BucketStore:
        """A bucket that lives as long as this object."""
        return cls(bucket, MemoryStore(), f"memory-{next(_MEMORIES)}", observe)

    @cached_property
    def _prompt_client(self) -> Client:
        return self._client if self._connect_promptly is None else self._connect_promptly()

    def _check_location(self, at: Location) -> None:
        super()._check_location(at)
        require_own_client(at)
        if at.bucket != self._bucket:
            raise errors.InvalidName(at.uri, f"'{at.uri}' is not in bucket '{self._bucket}'")

    def _get_object(self, at: Location) -> VersionedBytes | None:
        with wrap_s3_errors("read", at):
            try:
                answer = obstore.get(self._client, at.key)
                body = bytes(answer.bytes())
            except FileNotFoundError as failure:
                if is_absent(failure):
                    return None
                raise
        return VersionedBytes(body, _tag(answer.meta["e_tag"], at), answer.meta["last_modified"].timestamp())

    def _put_object(self, at: Location, body: bytes) -> None:
        with wrap_s3_errors("write", at):
            obstore.put(self._client, at.key, body, use_multipart=False)

    def _create_object(self, at: Location, body: bytes) -> str | None:
        with wrap_s3_errors("create", at):
            try:
                answer = obstore.put(self._client, at.key, body, mode="create", use_multipart=False)
            except BaseError as failure:
                if is_precondition(failure):
                    return None
                raise
        return _tag(answer["e_tag"], at)

    def _swap_object(self, at: Location, body: bytes, token: str) -> str | None:
        with wrap_s3_errors("replace", at):
            try:
                answer = obstore.put(self._client, at.key, body, mode={"e_tag": token}, use_multipart=False)
            except BaseError as failure:
                # The client reports an object that has gone in the same way as one that has changed.
                if is_precondition(failure):
                    return None
                raise
        return _tag(answer["e_tag"], at)

    def _object_is_stored(self, at: Location) -> bool:
        with wrap_s3_errors("look for", at):
            try:
                obstore.head(self._client, at.key)
            except FileNotFoundError as failure:
                if not is_absent(failure):
                    raise
                return False
        return True

    def _object_exists(self, at: Location) -> bool:
        if at.key and self._object_is_stored(at):
            return True
        with wrap_s3_errors("look for", at):
            batches = obstore.list(self._client, at.key or None, chunk_size=1)
            return any(len(batch) > 0 for batch in batches)

    def _list_names(self, at: Location) -> list[str]:
        return list(self._list_sizes(at))

    def _list_sizes(self, at: Location) -> dict[str, int]:
        with wrap_s3_errors("list", at):
            found = obstore.list_with_delimiter(self._client, at.key or None)
        start = len(at.key) + 1 if at.key else 0
        sizes = ((entry["path"][start:], entry["size"]) for entry in found["objects"])
        return {name: size for name, size in sizes if name}

    def _list_tags(self, at: Location) -> dict[str, str | None]:
        with wrap_s3_errors("list", at):
            found = obstore.list_with_delimiter(self._client, at.key or None)
        start = len(at.key) + 1 if at.key else 0
        tags = ((entry["path"][start:], entry["e_tag"]) for entry in found["objects"])
        return {name: tag for name, tag in tags if name}

    def _all_sizes(self, at: Location) -> dict[str, int]:
        start = len(at.key) + 1 if at.key else 0
        with wrap_s3_errors("list", at):
            batches = obstore.list(self._client, at.key or None, chunk_size=1000)
            return {entry["path"][start:]: entry["size"] for batch in batches for entry in batch}

    def _read_chunks(self, at: Location) -> Iterator[bytes]:
        with wrap_s3_errors("read", at):
            try:
                size = obstore.head(self._client, at.key)["size"]
                for start in range(0, size, CHUNK):
                    length = min(CHUNK, size - start)
                    yield bytes(obstore.get_range(self._client, at.key, start=start, length=length))
            except FileNotFoundError as failure:
                if is_absent(failure):
                    raise not_found(at.uri) from failure
                raise

    def _put_chunks(self, at: Location, chunks: Iterable[bytes]) -> None:
        with wrap_s3_errors("write", at):
            # Not `put` of an iterator: within that no other request can be made to find the next chunk.
            writer = obstore.open_writer(self._client, at.key, buffer_size=CHUNK)
            for chunk in chunks:
                writer.write(chunk)
            writer.close()  # an upload that is not closed leaves no object

    def _list_folders(self, at: Location) -> list[str]:
        with wrap_s3_errors("list", at):
            found = obstore.list_with_delimiter(self._client, at.key or None)
        return [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]

    def _list_all(self, at: Location) -> list[str]:
        with wrap_s3_errors("list", at):
            found = obstore.list_with_delimiter(self._client, at.key or None)
        start = len(at.key) + 1 if at.key else 0
        objects = (entry["path"][start:] for entry in found["objects"])
        folders = (prefix.rstrip("/")[start:] for prefix in found["common_prefixes"])
        return [name for name in (*objects, *folders) if name]

    def _last_change(self, at: Location) -> float | None:
        with wrap_s3_errors("list", at):
            batches = obstore.list(self._client, at.key or None, chunk_size=1000)
            times = [entry["last_modified"].timestamp() for batch in batches for entry in batch]
        return max(times, default=None)

    def _rename_object(self, source: Location, target: Location) -> bool:
        if not self._share_object(source, target):
            return False
        with wrap_s3_errors("rename", source):
            obstore.delete(self._client, source.key)
        return True

    def _share_object(self, source: Location, target: Location) -> bool:
        with wrap_s3_errors("copy", source):
            try:
                obstore.copy(self._client, source.key, target.key)
            except FileNotFoundError as failure:
                if is_absent(failure):
                    return False
                raise
        return True

    def _delete_object(self, at: Location, fence: Fence | None) -> None:
        with wrap_s3_errors("delete", at):
            self._remove([at.key], fence)

    def _delete_prefix(self, at: Location, fence: Fence | None) -> None:
        with wrap_s3_errors("delete everything below", at):
            for batch in obstore.list(self._client, at.key or None, chunk_size=1000):
                self._remove([entry["path"] for entry in batch], fence)

    def _remove(self, keys: list[str], fence: Fence | None) -> None:
        if fence is None:
            _delete_keys(self._client, keys)
            return
        for left in reversed(range(_FENCED_ATTEMPTS)):
            fence.confirm()
            try:
                _delete_keys(self._prompt_client, keys)
            except _CLIENT_ERRORS as failure:
                if left == 0 or classify_store_error(failure)[0] is not FailureKind.TRANSIENT:
                    raise
            else:
                return


def _delete_keys(client: Client, keys: list[str]) -> None:
    try:
        obstore.delete(client, keys if len(keys) > 1 else keys[0])
    except FileNotFoundError as failure:
        if not is_absent(failure):
            raise


def s3_client(root: Location, *, prompt: bool = False) -> S3Store:
    """A client for the bucket of `root`, set up as the AWS environment says.

    With `prompt` a request that the store does not answer fails within seconds, and is not sent again.
    """
    settings = dict(root.storage_options())
    allow_http = settings.pop("allow_http", "false") == "true"
    with wrap_s3_errors("connect to", root):
        return S3Store(
            root.bucket,
            config=settings,  # type: ignore[arg-type]  # the keys are checked by obstore at run time
            client_options={
                "allow_http": allow_http,
                "connect_timeout": _CONNECT_TIMEOUT,
                "timeout": _PROMPT_TIMEOUT if prompt else _REQUEST_TIMEOUT,
            },
            retry_config={"max_retries": 0 if prompt else _MAX_RETRIES, "retry_timeout": _RETRY_TIMEOUT},
        )


def require_own_client(at: Location) -> None:
    """The threads of the S3 client do not survive a fork; a call in the child would never return."""
    global _client_process  # noqa: PLW0603
    if _client_process is None:
        _client_process = os.getpid()
    elif _client_process != os.getpid():
        raise errors.StorageFailure(
            f"'{at.uri}' cannot be reached from a process forked after its parent used a bucket",
            kind=FailureKind.CONFIGURATION,
            uri=at.uri,
            remedy="start worker processes with the 'spawn' method, or fork before a bucket is used",
        )


@contextmanager
def wrap_s3_errors(doing: str, at: Location) -> Iterator[None]:
    """Errors of the S3 client become ours."""
    try:
        yield
    except _CLIENT_ERRORS as failure:
        raise storage_failure(failure, doing, at.uri) from failure


def _tag(tag: str | None, at: Location) -> str:
    if tag is None:
        raise errors.StorageFailure(
            f"the store answered for '{at.uri}' without an ETag",
            kind=FailureKind.CONFIGURATION,
            uri=at.uri,
            remedy="use an S3 store that returns ETags",
        )
    return tag
