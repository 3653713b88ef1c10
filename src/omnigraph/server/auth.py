"""Bearer tokens: where they come from, and which actor a request proves to be.

Only digests are held. A presented token is compared with every digest, in constant time and without an early
end, so that the time of an answer says nothing about any token.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest, MissingExtra, Unauthorized

AWS_SECRET = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"
TOKENS_FILE = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
TOKENS_JSON = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
ONE_TOKEN = "OMNIGRAPH_SERVER_BEARER_TOKEN"
DEFAULT_ACTOR = "default"

_PREFIX = b"Bearer "


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a server, as digests by actor."""

    source: str = "none"
    digests: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.digests)

    def identify(self, headers: Iterable[bytes]) -> str:
        """Return the actor whose token the `Authorization` headers of a request carry."""
        found = list(headers)
        if not found or not found[0].startswith(_PREFIX):
            raise Unauthorized(
                "missing bearer token",
                remedy="send the header 'Authorization: Bearer TOKEN': `og.connect(url, token=...)`, "
                "or `omnigraph login`",
            )
        presented = hashlib.sha256(found[0][len(_PREFIX) :]).digest()
        actors = [actor for actor, digest in self.digests if hmac.compare_digest(digest, presented)]
        if not actors or len(found) > 1:
            raise Unauthorized("invalid bearer token", remedy="ask an administrator for a token")
        return actors[0]


def load_tokens(environment: Mapping[str, str] = os.environ) -> Tokens:
    """Return the tokens that the environment names; a source that cannot be read stops the start."""
    secret = environment.get(AWS_SECRET, "").strip()
    if secret:
        return Tokens("aws-secrets-manager", _digests(_parse(_read_secret(secret), AWS_SECRET)))
    named = _named_tokens(environment)
    one = environment.get(ONE_TOKEN)
    if one is not None and one.strip():
        named = [*named, (DEFAULT_ACTOR, one)]
    return Tokens("env-or-file", _digests(named)) if named else Tokens()


def _named_tokens(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    path = environment.get(TOKENS_FILE, "").strip()
    if path:
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise BadRequest(f"{TOKENS_FILE}: '{path}' cannot be read: {error.strerror}") from error
        return _parse(text, TOKENS_FILE)
    inline = environment.get(TOKENS_JSON, "").strip()
    return _parse(inline.encode(), TOKENS_JSON) if inline else []


def _parse(text: bytes, source: str) -> list[tuple[str, str]]:
    """Return the pairs of a JSON object; no error repeats a part of it."""
    try:
        found = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise BadRequest(
            f"{source} is not a JSON object of tokens by actor", remedy='write it as {"ACTOR": "TOKEN"}'
        ) from None
    return list(found.items())


def _digests(named: Iterable[tuple[str, str]]) -> tuple[tuple[str, bytes], ...]:
    found: dict[str, bytes] = {}
    for actor, token in ((actor.strip(), token.strip()) for actor, token in named):
        if not actor:
            raise BadRequest("a bearer token has a blank actor", remedy="name the actor of every token")
        if not token:
            raise BadRequest(f"the bearer token of actor '{actor}' is blank")
        if actor in found:
            raise BadRequest(f"actor '{actor}' has two bearer tokens", remedy="give each actor one token")
        digest = hashlib.sha256(token.encode()).digest()
        if digest in found.values():
            raise BadRequest(f"the bearer token of actor '{actor}' is that of another actor too")
        found[actor] = digest
    return tuple(found.items())


def _read_secret(secret: str) -> bytes:
    try:
        boto: Any = import_module("boto3")
    except ModuleNotFoundError as missing:
        raise MissingExtra(f"{AWS_SECRET}", package="boto3", extra="aws") from missing
    try:
        answer = boto.client("secretsmanager").get_secret_value(SecretId=secret)
    except (import_module("botocore.exceptions").BotoCoreError, boto.exceptions.Boto3Error) as error:
        raise BadRequest(f"{AWS_SECRET}: the secret cannot be read: {type(error).__name__}") from error
    except import_module("botocore.exceptions").ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        raise BadRequest(f"{AWS_SECRET}: the secret cannot be read: {code}") from error
    text = answer.get("SecretString")
    if not isinstance(text, str):
        raise BadRequest(f"{AWS_SECRET}: the secret is not a text")
    return text.encode()
