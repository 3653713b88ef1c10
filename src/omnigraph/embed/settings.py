"""Which provider embeds texts, as the environment or a caller says."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import field
from typing import Literal, get_args
from urllib.parse import urlsplit

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import EmbeddingNotConfigured

EmbedProvider = Literal["openai", "gemini", "http", "offline", "mock"]
PROVIDERS: tuple[str, ...] = get_args(EmbedProvider)

PROVIDER_SETTING = "OMNIGRAPH_EMBED_PROVIDER"
MODEL_SETTING = "OMNIGRAPH_EMBED_MODEL"
URL_SETTING = "OMNIGRAPH_EMBED_BASE_URL"
KEY_SETTING = "OMNIGRAPH_EMBED_API_KEY"
TIMEOUT_SETTING = "OMNIGRAPH_EMBED_TIMEOUT"
MOCK_SETTING = "OMNIGRAPH_EMBEDDINGS_MOCK"

OFFLINE_MODEL = "wordllama-l2-supercat"
DEFAULT_TIMEOUT = 30.0

_SPELLINGS: dict[str, EmbedProvider] = {
    "openai": "openai",
    "gemini": "gemini",
    "http": "http",
    "openai-compatible": "http",
    "offline": "offline",
    "mock": "mock",
}
_MODELS = {
    "openai": "text-embedding-3-small",
    "gemini": "gemini-embedding-2",
    "offline": OFFLINE_MODEL,
    "mock": "mock",
}
_URLS = {
    "openai": "https://api.openai.com/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
}
# The key of a well-known service is never sent to an address of the user's own choosing.
_KEYS = {"openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY", "http": KEY_SETTING}
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class EmbedSettings:
    """A complete choice of provider; `choose` and `from_environment` make only usable ones."""

    provider: EmbedProvider
    model: str
    base_url: str = ""
    """Where the provider is; empty for those that need no network."""
    api_key: str | None = field(default=None, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    """Seconds one request may take."""

    @classmethod
    def choose(
        cls,
        provider: str,
        *,
        model: str | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
    ) -> EmbedSettings:
        """The settings of a provider, with its defaults filled in; refused when something is missing."""
        chosen = _SPELLINGS.get(provider.strip().lower())
        if chosen is None:
            raise EmbeddingNotConfigured(
                f"there is no embedding provider '{provider}'",
                provider=provider,
                remedy=f"choose one of {', '.join(PROVIDERS)} with {PROVIDER_SETTING}",
            )
        if chosen in ("mock", "offline"):
            return cls(chosen, _choose_model(chosen, model))
        url = _choose_address(chosen, base_url)
        return cls(chosen, _choose_model(chosen, model), url, _choose_key(chosen, api_key), timeout)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> EmbedSettings | None:
        """What the environment asks for; None when it asks for no provider."""
        found = os.environ if environment is None else environment

        def value(name: str) -> str | None:
            return found.get(name, "").strip() or None

        provider = "mock" if _is_on(found.get(MOCK_SETTING, "")) else value(PROVIDER_SETTING)
        if provider is None:
            return None
        key_name = _KEYS.get(_SPELLINGS.get(provider.lower(), ""))
        return cls.choose(
            provider,
            model=value(MODEL_SETTING),
            base_url=value(URL_SETTING),
            api_key=value(key_name) if key_name else None,
            timeout=_parse_seconds(value(TIMEOUT_SETTING)),
        )

    @classmethod
    def from_profile(
        cls, profile: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> EmbedSettings:
        """The settings of a declared provider; the environment has the key that `${NAME}` stands for."""
        key, known = profile.get("api_key"), os.environ if environment is None else environment
        return cls.choose(
            profile["kind"],
            model=profile.get("model"),
            base_url=profile.get("base_url"),
            api_key=None if key is None else _look_up(key, known),
        )


def _look_up(reference: str, environment: Mapping[str, str]) -> str:
    name = reference.removeprefix("${").removesuffix("}")
    found = environment.get(name, "").strip()
    if not found:
        raise EmbeddingNotConfigured(
            f"the key of the embedding provider is in {name}, which is not set", remedy=f"set {name}"
        )
    return found


def _choose_model(provider: EmbedProvider, model: str | None) -> str:
    chosen = model or _MODELS.get(provider)
    if chosen is None:
        raise EmbeddingNotConfigured(
            f"embedding provider '{provider}' needs the name of a model",
            provider=provider,
            remedy=f"set {MODEL_SETTING}",
        )
    if provider == "offline" and chosen != OFFLINE_MODEL:
        raise EmbeddingNotConfigured(
            f"embedding provider 'offline' has no model '{chosen}'",
            provider=provider,
            remedy=f"unset {MODEL_SETTING}, or set it to {OFFLINE_MODEL}",
        )
    return chosen


def _choose_address(provider: EmbedProvider, base_url: str | None) -> str:
    chosen = (base_url or _URLS.get(provider, "")).rstrip("/")
    if not chosen:
        raise EmbeddingNotConfigured(
            f"embedding provider '{provider}' needs an address",
            provider=provider,
            remedy=f"set {URL_SETTING} to the part of the address before /embeddings",
        )
    fault = _find_address_fault(provider, chosen)
    if fault:
        # The address itself is not repeated: it may hold a password.
        raise EmbeddingNotConfigured(
            f"the address of embedding provider '{provider}' {fault}",
            provider=provider,
            remedy=f"correct {URL_SETTING}, for example https://host/v1",
        )
    return chosen


def _find_address_fault(provider: EmbedProvider, url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "cannot be read"
    if parts.scheme not in ("http", "https"):
        return "must begin with https:// or http://"
    if not host or port == 0 or any(not 0x20 < ord(character) < 0x7F for character in url):
        return "cannot be read"
    if "@" in parts.netloc or "?" in url or "#" in url:
        return "must hold no user, query or fragment"
    if provider != "http" and parts.scheme == "http" and not _is_localhost(host):
        return "must begin with https://, so that the key travels encrypted"
    return None


def _is_localhost(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _choose_key(provider: EmbedProvider, api_key: str | None) -> str | None:
    if api_key is None:
        if provider == "http":
            return None
        raise EmbeddingNotConfigured(
            f"embedding provider '{provider}' needs a key",
            provider=provider,
            remedy=f"set {_KEYS[provider]}",
        )
    if not all(0x20 < ord(character) < 0x7F for character in api_key):
        raise EmbeddingNotConfigured(
            f"the key of embedding provider '{provider}' holds spaces or characters no key has",
            provider=provider,
            remedy=f"correct {_KEYS[provider]}",
        )
    return api_key


def _parse_seconds(text: str | None) -> float:
    if text is None:
        return DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise EmbeddingNotConfigured(
            f"{TIMEOUT_SETTING} must be a number of seconds above 0 and up to 3600, not '{text}'",
            remedy=f"correct or unset {TIMEOUT_SETTING}",
        )
    return seconds


def _is_on(text: str) -> bool:
    answer = text.strip().lower()
    if answer not in _YES | _NO:
        raise EmbeddingNotConfigured(
            f"{MOCK_SETTING} must be 1 or 0, not '{text}'", remedy=f"correct or unset {MOCK_SETTING}"
        )
    return answer in _YES
