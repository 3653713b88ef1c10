"""Where a graph or one of its parts is: a folder on this machine or a prefix in an S3 bucket."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

from omnigraph import errors
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import MissingExtra

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(/?)")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Tables are opened through a URL parser, control objects by their plain key: in these characters the two
# would disagree about which key is meant.
_AMBIGUOUS_IN_URLS = frozenset("#?%")
_FORMS = "give a folder (`./my-graph`, `file:///data/my-graph`) or a bucket (`s3://bucket/my-graph`)"

_NO_KEYS = "keep keys out of the address: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True, slots=True)
class Location:
    """An absolute place; `uri` is a plain absolute path for a folder, else `s3://bucket/key`."""

    uri: str

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> Location:
        """The place a user names; a relative path counts from the current folder."""
        given = os.fspath(text)
        _refuse_unprintable(given, given)
        if not given.strip():
            raise errors.InvalidName(given, "the location of a graph must not be empty", remedy=_FORMS)
        scheme = _SCHEME.match(given)
        if scheme is None:
            return cls(_to_absolute(given))
        rest = given[scheme.end() :]
        match scheme.group(1).lower(), scheme.group(2):
            case "file", "/":
                return cls(_file_path(given, rest))
            case "s3", "/":
                return cls(_bucket_uri(given, rest))
        shown = _hide_secrets(given)
        raise errors.InvalidName(
            shown,
            f"'{shown}' is not a place a graph can be in",
            remedy=_suggest_place(scheme.group(1).lower(), rest),
        )

    @property
    def is_local(self) -> bool:
        """True for a folder or file on this machine."""
        return not self.uri.startswith("s3://")

    @property
    def path(self) -> Path:
        """The path of a local place."""
        self.require_local()
        return Path(self.uri)

    def require_local(self) -> None:
        """Refuse a place elsewhere."""
        if not self.is_local:
            raise errors.InvalidName(self.uri, f"'{self.uri}' is not a folder on this machine")

    @property
    def bucket(self) -> str:
        """The bucket of an S3 place."""
        return self._bucket_and_key()[0]

    @property
    def key(self) -> str:
        """The key inside the bucket of an S3 place, without a leading slash."""
        return self._bucket_and_key()[1]

    @property
    def name(self) -> str:
        """The last part."""
        return self.uri.rpartition("/")[2]

    def __truediv__(self, relative: str) -> Location:
        """The place `relative` below this one; it can never lead outside."""
        for part in relative.split("/"):
            _refuse_part(relative, part)
        return Location(f"{self.uri.rstrip('/')}/{relative}")

    def __str__(self) -> str:
        return self.uri

    def storage_options(self, environment: Mapping[str, str] | None = None) -> dict[str, str]:
        """What Lance needs to reach this place: nothing for a folder, the AWS settings for a bucket."""
        if self.is_local:
            return {}
        return _aws_options(self.uri, os.environ if environment is None else environment)

    def _bucket_and_key(self) -> tuple[str, str]:
        if self.is_local:
            raise errors.InvalidName(self.uri, f"'{self.uri}' is not in a bucket")
        bucket, _, key = self.uri.removeprefix("s3://").partition("/")
        return bucket, key


def _suggest_place(scheme: str, rest: str) -> str:
    """What was probably meant by an address of another kind."""
    if scheme in ("s3", "s3a", "s3n"):
        return f"write `s3://{_hide_secrets(rest)}`"
    if scheme in ("http", "https"):
        if "amazonaws.com" in rest.partition("/")[0]:
            return "name the bucket: `s3://bucket/my-graph`; AWS_ENDPOINT_URL names another service than AWS"
        return "a graph behind a server is opened with `og.connect` (`--server`); " + _FORMS
    if scheme in ("gs", "gcs", "az", "abfs", "abfss", "wasb", "wasbs"):
        return f"only buckets with the S3 interface are supported; {_FORMS}"
    return _FORMS


def _hide_secrets(text: str) -> str:
    """Return an address without the user and password that it may hold, for messages."""
    start, slashes, rest = text.rpartition("//") if "//" in text else ("", "", text)
    host, slash, path = rest.partition("/")
    return f"{start}{slashes}***@{host.rpartition('@')[2]}{slash}{path}" if "@" in host else text


def _to_absolute(path: str) -> str:
    # Lexically: a link in the path stays a link, so the user sees the name they gave.
    absolute = os.path.abspath(path)  # noqa: PTH100
    if "?" in absolute:
        # Lance takes the rest for the query of a URL when it makes a fork, and stores that somewhere else.
        raise errors.InvalidName(path, f"'{path}' must not contain '?'", remedy="choose another folder")
    return "/" + absolute.lstrip("/")


def _file_path(given: str, rest: str) -> str:
    host, slash, path = rest.partition("/")
    if host not in ("", "localhost") or not slash:
        raise errors.InvalidName(given, f"'{given}' names another machine", remedy=_FORMS)
    decoded = unquote(path)
    _refuse_unprintable(given, decoded)
    return _to_absolute("/" + decoded)


def _bucket_uri(given: str, rest: str) -> str:
    bucket, _, key = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        shown = _hide_secrets(given)
        remedy = _NO_KEYS if "@" in bucket else _FORMS
        raise errors.InvalidName(shown, f"'{shown}' has no valid bucket name", remedy=remedy)
    parts = [part for part in key.split("/") if part]
    for part in parts:
        _refuse_part(given, part)
    if not _AMBIGUOUS_IN_URLS.isdisjoint(key):
        raise errors.InvalidName(given, f"'{given}' must not contain '#', '?' or '%' in a bucket")
    return "/".join([f"s3://{bucket}", *parts])


def _refuse_part(given: str, part: str) -> None:
    if part in ("", ".", ".."):
        raise errors.InvalidName(given, f"'{given}' must not have empty, '.' or '..' parts")
    _refuse_unprintable(given, part)


def _refuse_unprintable(given: str, text: str) -> None:
    if _UNPRINTABLE.search(text):
        raise errors.InvalidName(given, f"{given!r} must not contain control characters")


def _aws_options(uri: str, env: Mapping[str, str]) -> dict[str, str]:
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    allow_http = _is_true(env.get("AWS_ALLOW_HTTP"))
    if endpoint and endpoint.lower().startswith("http://") and not allow_http:
        raise errors.StorageFailure(
            f"the endpoint of '{uri}', {endpoint}, is not encrypted",
            kind="Configuration",
            uri=uri,
            remedy="set AWS_ALLOW_HTTP=true to use it anyway, or give an https endpoint",
        )
    found = {
        "aws_access_key_id": env.get("AWS_ACCESS_KEY_ID"),
        "aws_secret_access_key": env.get("AWS_SECRET_ACCESS_KEY"),
        "aws_session_token": env.get("AWS_SESSION_TOKEN"),
        "aws_region": env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1",
        "aws_endpoint": endpoint,
        "allow_http": "true" if allow_http else None,
        "aws_virtual_hosted_style_request": _virtual_hosted(env.get("AWS_S3_FORCE_PATH_STYLE")),
    }
    return {key: value for key, value in found.items() if value}


def _virtual_hosted(force_path_style: str | None) -> str | None:
    if not force_path_style:
        return None
    return "false" if _is_true(force_path_style) else "true"


def _is_true(text: str | None) -> bool:
    return (text or "").strip().lower() in ("1", "true", "yes", "on")


def require_s3() -> None:
    """Say what to install when the package of the `s3` extra is missing, before it is imported."""
    if find_spec("obstore") is None:
        raise MissingExtra("a bucket", package="obstore", extra="s3")
