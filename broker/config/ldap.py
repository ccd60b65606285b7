"""Options of LDAP, with the names of rabbitmq.conf; the queries are those of its advanced.config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from leveret.broker.config import kinds
from leveret.broker.config.declaration import group, option


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthLdapSslOptions:
    """TLS to the LDAP servers."""

    cacertfile: Path | None = option(
        kinds.optional(kinds.path(), "none"),
        None,
        "PEM file of the authorities that the LDAP servers' certificates are of; without it, those of the system.",
    )
    certfile: Path | None = option(
        kinds.optional(kinds.path(), "none"), None, "PEM file of a certificate to show to the LDAP servers."
    )
    keyfile: Path | None = option(kinds.optional(kinds.path(), "none"), None, "PEM file of its private key.")
    password: str | None = option(
        kinds.optional(kinds.text()), None, "Password of the key file, if it is encrypted.", secret=True
    )
    verify: str = option(
        kinds.choice("verify_none", "verify_peer"),
        "verify_peer",
        "Verify certificates of LDAP servers, and the names in them (verify_peer), or not (verify_none).",
    )
    sni: str | None = option(
        kinds.optional(kinds.text(), "none"), None, "Name in the certificates of LDAP servers, if it is not the host's."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthLdap:
    """Users of a directory, for `ldap` in `auth_backends`."""

    servers: tuple[str, ...] = option(kinds.names(), (), "LDAP servers, in the order in which they are tried.")
    port: int = option(kinds.integer(1, 65535), 389, "Port of the LDAP servers.")
    use_ssl: bool = option(kinds.boolean(), False, "Connect to the LDAP servers over TLS, usually on port 636.")
    use_starttls: bool = option(
        kinds.boolean(), False, "Connect to the LDAP servers without encryption, and begin it then."
    )
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
    user_bind_pattern: str | None = option(
        kinds.optional(kinds.text(), "none"),
        None,
        "Name to log in with, if it is not the DN: `${username}@example.com`.",
    )
    dn_lookup_attribute: str | None = option(
        kinds.optional(kinds.text(), "none"), None, "Attribute by which the DN of a user is searched: `uid`."
    )
    dn_lookup_base: str | None = option(
        kinds.optional(kinds.text(), "none"), None, "DN below which users, and groups of groups, are searched."
    )
    dn_lookup_bind: str | Mapping[str, str] = option(
        kinds.bind(), "as_user", "Who searches the DN of a user: the user, nobody (anon), or an entry of its own."
    )
    other_bind: str | Mapping[str, str] = option(
        kinds.bind(), "as_user", "Who asks the queries below: the user, nobody (anon), or an entry of its own."
    )
    anon_auth: bool = option(kinds.boolean(), False, "Has no effect here; RabbitMQ's client needs it for some servers.")
    group_lookup_base: str | None = option(
        kinds.optional(kinds.text(), "none"), None, "DN below which groups are searched by in_group_nested."
    )
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
