"""Where bearer tokens come from, and that nothing of them shows."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import make_server

from omnigraph.errors import BadRequest, MissingExtra, Unauthorized
from omnigraph.server import auth
from omnigraph.server.auth import load_tokens

SECRET = "s3cret-value"


def identify(environment: dict[str, str], token: str) -> str:
    return load_tokens(environment).identify([f"Bearer {token}".encode()])


def test_file_wins_over_inline_and_one_token_is_added(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text('{" ada ": " one "}')
    environment = {
        auth.TOKENS_FILE: str(tmp_path / "tokens.json"),
        auth.TOKENS_JSON: '{"bob": "two"}',
        auth.ONE_TOKEN: "three",
    }
    assert identify(environment, "one") == "ada"
    assert identify(environment, "three") == "default"
    with pytest.raises(Unauthorized, match="invalid bearer token"):
        identify(environment, "two")


def test_no_setting_is_no_token() -> None:
    assert not load_tokens({})
    assert not load_tokens({auth.TOKENS_JSON: "  ", auth.ONE_TOKEN: " "})


@pytest.mark.parametrize(
    "tokens",
    [
        "[]",
        f'{{"a": "{SECRET}"',
        f'{{"a": ["{SECRET}"]}}',
        f'{{" ": "{SECRET}"}}',
        '{"a": " "}',
        f'{{"a": "{SECRET}", " a": "other"}}',
        f'{{"a": "{SECRET}", "b": "{SECRET} "}}',
    ],
)
def test_wrong_tokens_stop_the_start_and_are_not_repeated(tokens: str) -> None:
    with pytest.raises(BadRequest) as caught:
        load_tokens({auth.TOKENS_JSON: tokens})
    assert SECRET not in str(caught.value.to_json())
    assert caught.value.__cause__ is None


def test_default_actor_cannot_have_two_tokens() -> None:
    with pytest.raises(BadRequest, match="actor 'default' has two bearer tokens"):
        load_tokens({auth.TOKENS_JSON: '{"default": "a"}', auth.ONE_TOKEN: "b"})


def test_unreadable_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        load_tokens({auth.TOKENS_FILE: str(tmp_path / "missing.json")})


def test_tokens_are_held_as_digests_only() -> None:
    assert SECRET not in repr(load_tokens({auth.ONE_TOKEN: SECRET}))
    assert SECRET.encode() not in b"".join(
        digest for _, digest in load_tokens({auth.ONE_TOKEN: SECRET}).digests
    )


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ([], "missing bearer token"),
        ([b"bearer x"], "missing bearer token"),
        ([b"Bearer"], "missing bearer token"),
        ([b"Basic x"], "missing bearer token"),
        ([b"Bearer  x"], "invalid bearer token"),
        ([b"Bearer "], "invalid bearer token"),
        ([b"Bearer \xff\xfe"], "invalid bearer token"),
        ([b"Bearer x", b"Bearer x"], "invalid bearer token"),
    ],
)
def test_headers_that_prove_nothing(headers: list[bytes], text: str) -> None:
    with pytest.raises(Unauthorized, match=text):
        load_tokens({auth.ONE_TOKEN: "x"}).identify(headers)


def test_secret_store_without_its_package_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(auth, "import_module", missing)
    with pytest.raises(MissingExtra):
        load_tokens({auth.AWS_SECRET: "arn", auth.TOKENS_JSON: json.dumps({"a": "b"})})


@pytest.fixture
def secrets_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of AWS Secrets Manager on loopback, which the environment names as well."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, create_backend_app("secretsmanager"), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "AWS_CONFIG_FILE": "/nonexistent",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    boto: Any = import_module("boto3")
    yield boto.client("secretsmanager")
    server.shutdown()
    thread.join()
    server.server_close()


def test_tokens_come_from_a_secret_store_before_all_others(
    secrets_manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = secrets_manager.create_secret(Name="tokens", SecretString=json.dumps({"ada": SECRET}))
    secrets_manager.create_secret(Name="binary", SecretBinary=SECRET.encode())
    secrets_manager.create_secret(Name="wrong", SecretString=SECRET)
    for secret in ("tokens", made["ARN"]):
        found = load_tokens({auth.AWS_SECRET: secret, auth.TOKENS_JSON: '{"bob": "other"}'})
        assert found.source == "aws-secrets-manager"
        assert found.identify([f"Bearer {SECRET}".encode()]) == "ada"
        with pytest.raises(Unauthorized):
            found.identify([b"Bearer other"])
    for secret, reason in (
        ("missing", "ResourceNotFoundException"),
        ("binary", "not a text"),
        ("wrong", "not a JSON object"),
    ):
        with pytest.raises(BadRequest, match=reason) as refused:
            load_tokens({auth.AWS_SECRET: secret})
        assert SECRET not in str(refused.value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(BadRequest, match="the secret cannot be read: EndpointConnectionError"):
        load_tokens({auth.AWS_SECRET: "tokens"})
