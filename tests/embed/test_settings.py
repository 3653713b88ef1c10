"""Which provider is chosen, and what is refused before anything is sent."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from omnigraph.embed.providers import configured_embedder
from omnigraph.embed.settings import PROVIDERS, EmbedSettings
from omnigraph.errors import EmbeddingNotConfigured

KEY = "sk-very-secret-0123456789"

COMPLETE = {
    "openai": {"OPENAI_API_KEY": KEY},
    "gemini": {"GEMINI_API_KEY": KEY},
    "http": {"OMNIGRAPH_EMBED_MODEL": "m", "OMNIGRAPH_EMBED_BASE_URL": "http://127.0.0.1:1/v1"},
    "offline": {},
    "mock": {},
}


def read_settings(**environment: str) -> EmbedSettings | None:
    return EmbedSettings.from_environment(environment)


def read_refusal(**environment: str) -> EmbeddingNotConfigured:
    with pytest.raises(EmbeddingNotConfigured) as caught:
        EmbedSettings.from_environment(environment)
    assert KEY not in repr((str(caught.value), caught.value.to_json()))
    assert caught.value.remedy
    return caught.value


def test_an_environment_that_says_nothing_chooses_nothing() -> None:
    assert read_settings() is None
    assert (
        read_settings(OMNIGRAPH_EMBED_PROVIDER=" ", OMNIGRAPH_EMBEDDINGS_MOCK="0", OPENAI_API_KEY=KEY) is None
    )
    assert configured_embedder({}) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "openai", "OPENAI_API_KEY": f" {KEY}\n"},
            EmbedSettings("openai", "text-embedding-3-small", "https://api.openai.com/v1", KEY),
        ),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "Gemini", "GEMINI_API_KEY": KEY, "OMNIGRAPH_EMBED_TIMEOUT": "2.5"},
            EmbedSettings(
                "gemini", "gemini-embedding-2", "https://generativelanguage.googleapis.com/v1beta", KEY, 2.5
            ),
        ),
        (
            {
                "OMNIGRAPH_EMBED_PROVIDER": "openai-compatible",
                "OMNIGRAPH_EMBED_MODEL": "nomic",
                "OMNIGRAPH_EMBED_BASE_URL": "http://embedder:8080/v1/",
                "OMNIGRAPH_EMBED_API_KEY": KEY,
            },
            EmbedSettings("http", "nomic", "http://embedder:8080/v1", KEY),
        ),
        ({"OMNIGRAPH_EMBED_PROVIDER": "offline"}, EmbedSettings("offline", "wordllama-l2-supercat")),
        ({"OMNIGRAPH_EMBED_PROVIDER": "mock"}, EmbedSettings("mock", "mock")),
        (
            {"OMNIGRAPH_EMBED_PROVIDER": "mock", "OMNIGRAPH_EMBED_MODEL": "text-embedding-3-small"},
            EmbedSettings("mock", "text-embedding-3-small"),
        ),
        (
            {"OMNIGRAPH_EMBEDDINGS_MOCK": "true", "OMNIGRAPH_EMBED_PROVIDER": "openai"},
            EmbedSettings("mock", "mock"),
        ),
    ],
)
def test_an_environment_chooses_a_provider(environment: dict[str, str], expected: EmbedSettings) -> None:
    assert read_settings(**environment) == expected


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_has_an_embedder_with_the_name_of_its_model(provider: str) -> None:
    environment = {"OMNIGRAPH_EMBED_PROVIDER": provider, **COMPLETE[provider]}
    settings, embedder = read_settings(**environment), configured_embedder(environment)
    assert settings is not None
    assert embedder is not None
    assert embedder.model == settings.model


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    error = read_refusal(OMNIGRAPH_EMBED_PROVIDER="cohere")
    assert str(error) == "there is no embedding provider 'cohere'"
    assert all(provider in str(error.remedy) for provider in PROVIDERS)


@pytest.mark.parametrize(
    ("provider", "missing"),
    [
        ("openai", "OPENAI_API_KEY"),
        ("gemini", "GEMINI_API_KEY"),
        ("http", "OMNIGRAPH_EMBED_MODEL"),
        ("http", "OMNIGRAPH_EMBED_BASE_URL"),
    ],
)
def test_what_a_provider_lacks_is_named(provider: str, missing: str) -> None:
    environment = {name: value for name, value in COMPLETE[provider].items() if name != missing}
    error = read_refusal(OMNIGRAPH_EMBED_PROVIDER=provider, **environment)
    assert missing in str(error.remedy)
    assert error.provider == provider


def test_the_key_of_a_service_is_not_sent_to_another_endpoint() -> None:
    environment = {**COMPLETE["http"], "OPENAI_API_KEY": KEY, "GEMINI_API_KEY": KEY}
    settings = read_settings(OMNIGRAPH_EMBED_PROVIDER="http", **environment)
    assert settings is not None
    assert settings.api_key is None


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_is_no_key_is_refused_without_showing_it(key: str) -> None:
    error = read_refusal(OMNIGRAPH_EMBED_PROVIDER="openai", OPENAI_API_KEY=key)
    assert key not in str(error)
    assert "OPENAI_API_KEY" in str(error.remedy)


@pytest.mark.parametrize(
    "url",
    [
        "embedder:8080",
        "ftp://host/v1",
        "https://",
        "https://user:word@host/v1",
        "https://host/v1?key=word",
        "https://host/v1#word",
        "https://host:99999/v1",
        "https://ho st/v1",
        "https://[::1/v1",
        "https://höst/v1",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_it(url: str) -> None:
    environment = {**COMPLETE["http"], "OMNIGRAPH_EMBED_BASE_URL": url}
    error = read_refusal(OMNIGRAPH_EMBED_PROVIDER="http", **environment)
    assert "word" not in str(error)
    assert "OMNIGRAPH_EMBED_BASE_URL" in str(error.remedy)


@pytest.mark.parametrize(
    ("url", "is_fine"),
    [
        ("https://gateway.example/v1", True),
        ("http://localhost:8080/v1", True),
        ("http://127.0.0.1/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://gateway.example/v1", False),
        ("http://127.0.0.1.example/v1", False),
    ],
)
def test_the_key_of_a_service_leaves_the_machine_only_encrypted(url: str, is_fine: bool) -> None:
    environment = {**COMPLETE["openai"], "OMNIGRAPH_EMBED_BASE_URL": url}
    if is_fine:
        assert read_settings(OMNIGRAPH_EMBED_PROVIDER="openai", **environment) is not None
    else:
        assert "https://" in str(read_refusal(OMNIGRAPH_EMBED_PROVIDER="openai", **environment))


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon", "3601"])
def test_a_timeout_that_is_none_is_refused(seconds: str) -> None:
    error = read_refusal(OMNIGRAPH_EMBED_PROVIDER="mock", OMNIGRAPH_EMBED_TIMEOUT=seconds)
    assert "OMNIGRAPH_EMBED_TIMEOUT" in str(error)


def test_a_switch_that_is_neither_on_nor_off_is_refused() -> None:
    assert "OMNIGRAPH_EMBEDDINGS_MOCK" in str(read_refusal(OMNIGRAPH_EMBEDDINGS_MOCK="maybe"))


def test_the_offline_provider_has_one_model() -> None:
    error = read_refusal(OMNIGRAPH_EMBED_PROVIDER="offline", OMNIGRAPH_EMBED_MODEL="other")
    assert "wordllama-l2-supercat" in str(error.remedy)


def test_settings_do_not_show_the_key_and_keep_it_on_the_way_to_another_process() -> None:
    settings = EmbedSettings.choose("openai", api_key=KEY)
    assert KEY not in repr(settings)
    assert KEY not in str(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_environment_of_the_process_counts_when_no_other_is_given() -> None:
    program = """
from omnigraph.embed.settings import EmbedSettings
print(EmbedSettings.from_environment())
"""
    environment = {**os.environ, "OMNIGRAPH_EMBED_PROVIDER": "openai", "OPENAI_API_KEY": KEY}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert "text-embedding-3-small" in done.stdout
    assert KEY not in done.stdout


def test_choosing_a_provider_loads_no_client_and_no_model() -> None:
    program = """
import sys
from omnigraph.embed.providers import configured_embedder
for provider in ("mock", "offline", "openai"):
    configured_embedder({"OMNIGRAPH_EMBED_PROVIDER": provider, "OPENAI_API_KEY": "k"})
print(sorted({"urllib3", "stamina", "tokenizers", "safetensors", "wordllama"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
