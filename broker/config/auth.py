"""Declarations of the options of authentication backends, except for those that have a module of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leveret.broker.config import kinds
from leveret.broker.config.declaration import group, option
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

    cacertfile: Path | None = option(
        kinds.optional(kinds.path(), "none"),
        None,
        "PEM file of the authorities that the server's certificate is verified against; by default those of the"
        " system.",
    )
    certfile: Path | None = option(
        kinds.optional(kinds.path(), "none"), None, "PEM file of the broker's certificate for the server."
    )
    keyfile: Path | None = option(
        kinds.optional(kinds.path(), "none"), None, "PEM file of the certificate's private key."
    )
    password: str | None = option(
        kinds.optional(kinds.text()), None, "Password of the key file, if it is encrypted.", secret=True
    )
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
