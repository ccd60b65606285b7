"""Declarations of the options of authentication backends, with the names of rabbitmq.conf."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.broker.config import kinds
from leveret.broker.config.declaration import (
    file_option,
    group,
    option,
    optional_text_option,
    password_option,
    switch_option,
    text_option,
)
from leveret.broker.config.kinds import Kind

#: Names of backends.
BACKENDS: Final = ("internal", "http", "ldap", "oauth2")
#: Prefix of RabbitMQ's names of modules.
_MODULE: Final = "rabbit_auth_backend_"
#: RabbitMQ's other names.
_ALIASES: Final = {"oauth": "oauth2", "uaa": "oauth2"}
#: Names in rabbitmq.conf of parts of an option: entries of a list, or of a mapping.
_OF_OAUTH2: Final = re.compile(
    r"(auth_oauth2\.(?:algorithms|oauth_providers|preferred_username_claims|resource_servers|scope_aliases|signing_keys))"
    r"\.(.+)"
)
_PART: Final = re.compile(
    r"(auth_backends(?=\.\d)|auth_ldap\.servers(?=\.\d)|auth_ldap\.(?:dn_lookup|other)_bind(?=\.[up]))"
    r"\.(\d+|user_dn|password)(?:\.(authn|authz))?"
)
_MILLISECONDS_MAX: Final = 2**31 - 1


def auth_backends() -> Kind[tuple[str, ...]]:
    """Return the kind of the list of backends: names, pairs `NAME+NAME`, or rabbitmq.conf's numbered entries."""

    def read(value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.strip("[]").split(",")]
        if isinstance(value, Mapping):
            value = [entry for _, entry in sorted((int(number), entry) for number, entry in value.items())]
        if not isinstance(value, list) or not value:
            raise ValueError(value)
        return tuple(dict.fromkeys(map(_read_entry, value)))

    names = ", ".join(BACKENDS)
    return Kind(read, f"a list of some of {names}, or of pairs of them such as http+internal")


def _read_entry(entry: object) -> str:
    if isinstance(entry, Mapping):
        if set(entry) != {"authn", "authz"}:
            raise ValueError(entry)
        entry = f"{entry['authn']}+{entry['authz']}"
    if not isinstance(entry, str):
        raise ValueError(entry)
    names = [_read_name(name.strip()) for name in entry.split("+")]
    if len(names) > 2:
        raise ValueError(entry)
    return "+".join(dict.fromkeys(names))


def _read_name(name: str) -> str:
    name = name.removeprefix(_MODULE)
    name = _ALIASES.get(name, name)
    if name not in BACKENDS:
        raise ValueError(name)
    return name


def gather_part(name: str, value: object, gathered: dict[str, dict[str, object]]) -> str:
    """Add a setting to the mapping of an option if rabbitmq.conf has that option in parts.

    Args:
        name: Name of the setting, such as ``auth_backends.1.authn`` or ``auth_ldap.servers.1``.
        gathered: Parts by option; pairs of backends are mappings.
    Returns:
        The option; "" for other settings.
    """
    nested = _OF_OAUTH2.fullmatch(name)
    if nested is not None:
        option, path = nested.groups()
        # Names of keys may have dots.
        steps = [path] if option == "auth_oauth2.signing_keys" else path.split(".")
        within = gathered.setdefault(option, {})
        for step in steps[:-1]:
            inner = within.setdefault(step, {})
            if not isinstance(inner, dict):
                # The same name with a value of its own, which is refused as that.
                return ""
            within = inner
        within[steps[-1]] = value
        return str(option)
    found = _PART.fullmatch(name)
    if found is None:
        return ""
    option, part, of_pair = found.groups()
    parts = gathered.setdefault(option, {})
    if of_pair is None:
        parts[part] = value
    else:
        pair = parts.get(part)
        parts[part] = {**(pair if isinstance(pair, Mapping) else {}), of_pair: value}
    return str(option)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthCache:
    """Answers of other servers that are kept."""

    ttl: int = option(
        kinds.duration(0, 86_400_000, "ms"),
        15_000,
        "Time for which logins and permissions are kept that another server has granted; 0 to keep no logins, and"
        " permissions for a second. A change of users or permissions empties it.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthHttpSsl:
    """TLS to the server of `auth_http`, if its URLs begin with https."""

    cacertfile: Path | None = file_option(
        "PEM file of the authorities that the server's certificate is verified against; by default those of the system."
    )
    certfile: Path | None = file_option("PEM file of the broker's certificate for the server.")
    keyfile: Path | None = file_option("PEM file of the certificate's private key.")
    password: str | None = password_option()
    verify: str = option(
        kinds.choice("verify_none", "verify_peer"),
        "verify_peer",
        "Verify the server's certificate (verify_peer), or not (verify_none).",
    )


def _url() -> Kind[str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not value.startswith(("http://", "https://")):
            raise ValueError(value)
        return value

    return Kind(read, "a URL that begins with http:// or https://")


def _path_option(of: str) -> str:
    return option(
        _url(),
        f"http://localhost:8000/auth/{of}",
        f"URL that is asked about {_ASKED[of]}.",
    )


_ASKED: Final = {
    "user": "logins; it answers `allow` with the user's tags, or `deny`",
    "vhost": "access to virtual hosts; it answers `allow` or `deny`",
    "resource": "permissions on queues and exchanges",
    "topic": "routing keys of topic exchanges",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthHttp:
    """The backend `http`: a server that is asked about each login and permission."""

    http_method: str = option(
        kinds.choice("get", "post"),
        "get",
        "Method of the requests; with `get` passwords are in URLs, and so may be in the server's log.",
    )
    user_path: str = _path_option("user")
    vhost_path: str = _path_option("vhost")
    resource_path: str = _path_option("resource")
    topic_path: str = _path_option("topic")
    connection_timeout: int = option(
        kinds.duration(1, _MILLISECONDS_MAX, "ms"), 15_000, "Time limit for connecting to the server."
    )
    request_timeout: int = option(
        kinds.duration(1, _MILLISECONDS_MAX, "ms"),
        15_000,
        "Time limit for an answer, connecting included; then the login or the operation is refused.",
    )
    ssl_options: AuthHttpSsl = group(AuthHttpSsl)


# -- LDAP ---------------------------------------------------------------------------------------------------

# The queries are those of RabbitMQ's advanced.config.


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthLdapSslOptions:
    """TLS to the LDAP servers."""

    cacertfile: Path | None = file_option(
        "PEM file of the authorities that the LDAP servers' certificates are of; without it, those of the system."
    )
    certfile: Path | None = file_option("PEM file of a certificate to show to the LDAP servers.")
    keyfile: Path | None = file_option("PEM file of its private key.")
    password: str | None = password_option()
    verify: str = option(
        kinds.choice("verify_none", "verify_peer"),
        "verify_peer",
        "Verify certificates of LDAP servers, and the names in them (verify_peer), or not (verify_none).",
    )
    sni: str | None = optional_text_option("Name in the certificates of LDAP servers, if it is not the host's.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthLdap:
    """Users of a directory, for `ldap` in `auth_backends`."""

    servers: tuple[str, ...] = option(kinds.names(), (), "LDAP servers, in the order in which they are tried.")
    port: int = option(kinds.integer(1, 65535), 389, "Port of the LDAP servers.")
    use_ssl: bool = switch_option("Connect to the LDAP servers over TLS, usually on port 636.")
    use_starttls: bool = switch_option("Connect to the LDAP servers without encryption, and begin it then.")
    ssl_options: AuthLdapSslOptions = group(AuthLdapSslOptions)
    timeout: int | None = option(
        kinds.optional(kinds.duration(1, 2**31 - 1, "ms"), "infinity"),
        5_000,
        "Time limit of a login or check at the LDAP servers; each is given its share of it to take a connection.",
    )
    idle_timeout: int | None = option(
        kinds.optional(kinds.duration(0, 2**31 - 1, "ms"), "infinity"),
        300_000,
        "How long a connection to an LDAP server is kept without use; 0 to close it each time.",
    )
    connection_pool_size: int = option(
        kinds.integer(1, 1024), 16, "How many logins and checks are at the LDAP servers at a time; others wait."
    )
    user_dn_pattern: str = option(
        kinds.text(), "${username}", "DN of a user, such as `uid=${username},ou=people,dc=example,dc=com`."
    )
    user_bind_pattern: str | None = optional_text_option(
        "Name to log in with, if it is not the DN: `${username}@example.com`."
    )
    dn_lookup_attribute: str | None = optional_text_option("Attribute by which the DN of a user is searched: `uid`.")
    dn_lookup_base: str | None = optional_text_option("DN below which users, and groups of groups, are searched.")
    dn_lookup_bind: str | Mapping[str, str] = option(
        kinds.bind(), "as_user", "Who searches the DN of a user: the user, nobody (anon), or an entry of its own."
    )
    other_bind: str | Mapping[str, str] = option(
        kinds.bind(), "as_user", "Who asks the queries below: the user, nobody (anon), or an entry of its own."
    )
    anon_auth: bool = switch_option("Has no effect here; RabbitMQ's client needs it for some servers.")
    group_lookup_base: str | None = optional_text_option("DN below which groups are searched by in_group_nested.")
    vhost_access_query: object = option(kinds.query(), True, "Query for whether a user may use a virtual host.")
    resource_access_query: object = option(
        kinds.query(), True, "Query for whether a user has a permission on a queue or exchange."
    )
    topic_access_query: object = option(
        kinds.query(), True, "Query for whether a user may use a routing key on a topic exchange."
    )
    tag_queries: object = option(
        kinds.query(), {"administrator": False}, "Queries by tag: does a user have it? See [LDAP](ldap.md)."
    )
    log: str = option(
        kinds.choice("false", "true", "network", "network_unsafe"),
        "false",
        "Log what the directory is asked, and its answers; passwords are never logged.",
    )


# -- OAuth 2 ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2Https:
    """TLS of requests to the provider."""

    peer_verification: str = option(
        kinds.choice("verify_none", "verify_peer"), "verify_peer", "Verify the provider's certificate, or not."
    )
    cacertfile: Path | None = file_option(
        "PEM file of the authorities that the provider's certificate is verified against; none for the system's."
    )
    hostname_verification: str = option(
        kinds.choice("wildcard", "none"), "wildcard", "Verify that the certificate is the host's (wildcard), or not."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthOAuth2:
    """Users of an OAuth 2 provider (`oauth2` in `auth_backends`), whose passwords are tokens that it has signed."""

    resource_server_id: str = text_option(
        "Name of this broker at the provider; tokens must have it in their audience (`aud`)."
    )
    verify_aud: bool = switch_option("Refuse tokens for another audience.", default=True)
    scope_prefix: str | None = option(
        kinds.optional(kinds.text(empty=True)),
        None,
        "Prefix of the scopes that are for this broker; by default `resource_server_id` and a dot.",
    )
    scope_aliases: Mapping[str, object] = option(
        kinds.document(), {}, "Scopes that others stand for: `{ALIAS: SCOPE SCOPE}`."
    )
    additional_scopes_key: str = text_option(
        "Claims with more scopes, with a space between; a path such as `realm_access.roles` is a claim inside another."
    )
    preferred_username_claims: tuple[str, ...] = option(
        kinds.names(), (), "Claims that the user's name is taken from, before `client_id` and `sub`."
    )
    issuer: str = text_option(
        "URL of the provider: its discovery document says where its keys are, and tokens must have it as `iss`."
    )
    discovery_endpoint_path: str = option(
        kinds.url_path(), ".well-known/openid-configuration", "Path of the discovery document behind the issuer."
    )
    jwks_uri: str = text_option("URL of the provider's keys, if it is not to be discovered.")
    jwks_url: str = text_option("As `auth_oauth2.jwks_uri`; RabbitMQ 3.10's name.")
    signing_keys: Mapping[str, object] = option(
        kinds.document(), {}, "PEM files of keys that tokens may be signed with, besides the provider's: `{KID: FILE}`."
    )
    default_key: str = text_option("Key of tokens that name none (`kid`).")
    algorithms: tuple[str, ...] = option(
        kinds.names(), (), "Algorithms that tokens may be signed with, such as `RS256`; none for all that are safe."
    )
    https: OAuth2Https = group(OAuth2Https)
    oauth_providers: Mapping[str, object] = option(
        kinds.document(),
        {},
        "Several providers: `{NAME: {issuer: …}}`, with the names `issuer`, `discovery_endpoint_path`, `jwks_uri`,"
        " `signing_keys`, `default_key`, `algorithms` and `https`.",
    )
    default_oauth_provider: str = text_option(
        "Provider of resource servers that name none; by default the one of `issuer`."
    )
    resource_servers: Mapping[str, object] = option(
        kinds.document(),
        {},
        "Several names of this broker: `{NAME: {oauth_provider_id: …}}`, with the names `id`, `oauth_provider_id`,"
        " `verify_aud`, `scope_prefix`, `scope_aliases`, `additional_scopes_key` and `preferred_username_claims`.",
    )
    leeway: int = option(
        kinds.duration(0, 600, "s"), 0, "How much the clocks of provider and broker may differ, for `exp` and `nbf`."
    )
