"""Reads the options of OAuth 2 into resource servers and providers."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from leveret.broker.auth.oauth2.keys import ALGORITHMS, InvalidKey, SigningKey, read_pem_file
from leveret.broker.config import kinds
from leveret.broker.config.auth import AuthOAuth2, OAuth2Https
from leveret.broker.config.config_errors import ConfigError

_GROUP: Final = "auth_oauth2"
_DISCOVERY: Final = ".well-known/openid-configuration"
_UNSAFE: Final = "must be a URL with https (http to this machine only)"
#: Hosts to which requests need no TLS.
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ResourceServer:
    """A name of this broker at a provider, and how its tokens are read. For the meanings see the options.

    Attributes:
        id: Must be in the audience of tokens.
        provider: Name of the provider; "" for the one of the options without a name.
    """

    id: str
    provider: str = ""
    verify_aud: bool = True
    scope_prefix: str = ""
    scope_aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    additional_scopes_keys: tuple[str, ...] = ()
    preferred_username_claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """A provider. For the meanings see the options.

    Attributes:
        discovery: URL of its discovery document; "" if it is not to be asked for.
        keys: The keys of `signing_keys`, which are always valid.
        tls: Verifies its certificate.
    """

    issuer: str = ""
    discovery: str = ""
    jwks_uri: str = ""
    keys: Mapping[str, SigningKey] = field(default_factory=dict)
    default_key: str = ""
    algorithms: tuple[str, ...] = ALGORITHMS
    tls: ssl.SSLContext | None = None


@dataclass(frozen=True, slots=True)
class OAuth2Settings:
    """What the options say: resource servers, and providers by name."""

    servers: tuple[ResourceServer, ...]
    providers: Mapping[str, ProviderSettings]
    leeway: int


def read_settings(options: AuthOAuth2) -> OAuth2Settings:
    """Read the options.

    Raises:
        ConfigError: They contradict each other, or a file cannot be read.
    """
    providers = {"": _read_provider(_GROUP, _as_document(options), options.https)}
    for name, document in _documents(options.oauth_providers, "oauth_providers", _PROVIDER_OPTIONS):
        providers[name] = _read_provider(f"{_GROUP}.oauth_providers.{name}", document, options.https)
    servers = []
    if options.resource_server_id or not options.resource_servers:
        servers.append(_read_server(_GROUP, {}, options, options.resource_server_id))
    for name, document in _documents(options.resource_servers, "resource_servers", _SERVER_OPTIONS):
        servers.append(_read_server(f"{_GROUP}.resource_servers.{name}", document, options, name))
    for server in servers:
        provider = providers.get(server.provider)
        if provider is None:
            raise ConfigError(
                f"{_GROUP}.oauth_providers: there is no provider '{server.provider}', which the resource server"
                f" '{server.id}' names; give {_GROUP}.oauth_providers.{server.provider}.issuer"
            )
        if not (provider.keys or provider.jwks_uri or provider.discovery):
            where = f"{_GROUP}.oauth_providers.{server.provider}" if server.provider else _GROUP
            raise ConfigError(f"{where}.issuer: needed to verify tokens, unless there are jwks_uri or signing_keys")
    return OAuth2Settings(tuple(servers), providers, options.leeway)


_PROVIDER_OPTIONS: Final = frozenset(
    ("issuer", "discovery_endpoint_path", "jwks_uri", "jwks_url", "signing_keys", "default_key", "algorithms", "https")
)
_SERVER_OPTIONS: Final = frozenset(
    (
        "id", "oauth_provider_id", "verify_aud", "scope_prefix", "scope_aliases", "additional_scopes_key",
        "preferred_username_claims",
    )
)  # fmt: skip


def _as_document(options: AuthOAuth2) -> dict[str, Any]:
    """Return the options of the provider without a name, in the form of those of `oauth_providers`."""
    return {name: getattr(options, name) for name in _PROVIDER_OPTIONS if name != "https"}


def _documents(
    value: Mapping[str, object], name: str, known: frozenset[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, document in value.items():
        where = f"{_GROUP}.{name}.{key}"
        if not isinstance(document, Mapping):
            raise ConfigError(f"{where}: must be a mapping of {', '.join(sorted(known))}")
        unknown = sorted(str(each) for each in document if each not in known)
        if unknown:
            raise ConfigError(f"{where}: unknown option '{unknown[0]}'; there are {', '.join(sorted(known))}")
        yield key, document


def _read_server(where: str, document: Mapping[str, Any], options: AuthOAuth2, name: str) -> ResourceServer:
    """Read a resource server; what it does not say is as the options without a name say."""
    identifier = _text(where, document, "id", name)
    prefix = document.get("scope_prefix", options.scope_prefix)
    if prefix is None:
        prefix = f"{identifier}." if identifier else ""
    if not isinstance(prefix, str):
        raise ConfigError(f"{where}.scope_prefix: must be a string")
    try:
        verify = kinds.boolean().read(document.get("verify_aud", options.verify_aud))
    except ValueError:
        raise ConfigError(f"{where}.verify_aud: must be true or false") from None
    return ResourceServer(
        identifier,
        _text(where, document, "oauth_provider_id", options.default_oauth_provider),
        verify,
        prefix,
        _read_aliases(f"{where}.scope_aliases", document.get("scope_aliases", options.scope_aliases)),
        tuple(_text(where, document, "additional_scopes_key", options.additional_scopes_key).split()),
        _names(where, document, "preferred_username_claims", options.preferred_username_claims),
    )


def _read_aliases(where: str, value: object) -> dict[str, tuple[str, ...]]:
    """Read `{ALIAS: SCOPES}`, or RabbitMQ's `{NUMBER: {alias: ALIAS, scope: SCOPES}}`."""
    found = {}
    for alias, scopes in value.items() if isinstance(value, Mapping) else ((None, None),):
        if isinstance(scopes, Mapping):
            alias, scopes = scopes.get("alias"), scopes.get("scope")
        if isinstance(scopes, str):
            scopes = scopes.split()
        if not isinstance(alias, str) or not isinstance(scopes, list) or not all(isinstance(s, str) for s in scopes):
            raise ConfigError(f"{where}: must be aliases, each with a scope, or several with spaces between")
        found[alias] = tuple(scopes)
    return found


def _read_provider(where: str, document: Mapping[str, Any], https: OAuth2Https) -> ProviderSettings:
    issuer = _text(where, document, "issuer", "")
    jwks_uri = _text(where, document, "jwks_uri", "") or _text(where, document, "jwks_url", "")
    path = _text(where, document, "discovery_endpoint_path", _DISCOVERY)
    discovery = f"{issuer.rstrip('/')}/{path.lstrip('/')}" if issuer else ""
    for option, url in (("issuer", issuer), ("jwks_uri", jwks_uri)):
        if url and not is_safe_url(url):
            raise ConfigError(f"{where}.{option}: {_UNSAFE}")
    keys = {}
    signing_keys = document.get("signing_keys") or {}
    for kid, file in signing_keys.items() if isinstance(signing_keys, Mapping) else ((None, None),):
        if not isinstance(kid, str) or not isinstance(file, str):
            raise ConfigError(f"{where}.signing_keys: must be names of keys (kid), each with a PEM file")
        try:
            keys[kid] = read_pem_file(Path(file).expanduser())
        except InvalidKey as invalid:
            raise ConfigError(f"{where}.signing_keys.{kid}: {invalid}") from None
    default_key = _text(where, document, "default_key", "")
    algorithms = _names(where, document, "algorithms", ()) or ALGORITHMS
    for algorithm in algorithms:
        if algorithm not in ALGORITHMS:
            raise ConfigError(
                f"{where}.algorithms: '{algorithm}' is none of {', '.join(ALGORITHMS)}; `none` and shared"
                " secrets (HS256) are not supported"
            )
    tls = _tls(where, document.get("https"), https)
    return ProviderSettings(issuer, discovery, jwks_uri, keys, default_key, algorithms, tls)


def provider_of_issuer(issuer: str, tls: ssl.SSLContext | None) -> ProviderSettings:
    """Return a provider that is only known by its issuer.

    Raises:
        ConfigError: Its URL is not one with https.
    """
    if not is_safe_url(issuer):
        raise ConfigError(f"management.oauth_provider_url: {_UNSAFE}")
    return ProviderSettings(issuer=issuer, discovery=f"{issuer.rstrip('/')}/{_DISCOVERY}", tls=tls)


def is_safe_url(url: str) -> bool:
    """Return whether requests to a URL are encrypted, or stay on this machine."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises for a port that is none
    except ValueError:
        return False
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)
    )


def _tls(where: str, document: object, default: OAuth2Https) -> ssl.SSLContext:
    if document is not None and not isinstance(document, Mapping):
        raise ConfigError(f"{where}.https: must be a mapping")
    given: Mapping[str, Any] = document or {}
    cacertfile = given.get("cacertfile", default.cacertfile)
    try:
        context = ssl.create_default_context(cafile=None if cacertfile is None else str(cacertfile))
    except OSError as error:
        raise ConfigError(f"{where}.https.cacertfile: {cacertfile} cannot be read: {error}") from error
    if given.get("hostname_verification", default.hostname_verification) == "none":
        context.check_hostname = False
    if given.get("peer_verification", default.peer_verification) == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _text(where: str, document: Mapping[str, Any], name: str, default: str) -> str:
    value = document.get(name, default)
    if not isinstance(value, str):
        raise ConfigError(f"{where}.{name}: must be a string")
    return value


def _names(where: str, document: Mapping[str, Any], name: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = document.get(name, default)
    if isinstance(value, Mapping):
        # RabbitMQ's algorithms.1 and so on.
        value = list(value.values())
    if isinstance(value, str):
        value = [each.strip() for each in value.split(",")]
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{where}.{name}: must be a list of names")
    return tuple(value)
